"""Where deletions fall."""

import numpy as np

from s3t.planning.simulation import Deletions


def test_probabilities_are_normalised():
    assert Deletions(probabilities=np.array([[0.5 + 5e-10, 0.5]])).probabilities.sum() == 1


def test_a_prior_holds_in_every_shard_or_each_has_its_own():
    assert Deletions.from_prior([0.75, 0.25], shards=2).probabilities.tolist() == [[0.375, 0.125]] * 2
    rows = [[0.75, 0.25], [0.5, 0.5]]
    assert Deletions.from_prior(rows, shards=2).probabilities.tolist() == [[0.375, 0.125], [0.25, 0.25]]
    assert Deletions.from_prior([1, 0], shards=3).slices == 2
