"""Where deletions fall."""

import numpy as np
import pytest

from s3t.errors import PlanningError
from s3t.planning.simulation import Deletions


def test_probabilities_are_normalised_and_read_only():
    found = Deletions(probabilities=[[0.5 + 5e-10, 0.5]])
    assert found.probabilities.sum() == 1
    with pytest.raises(ValueError, match="read-only"):
        found.probabilities[0, 0] = 1


def test_a_prior_holds_in_every_shard_or_each_has_its_own():
    assert Deletions.from_prior([0.75, 0.25], shards=2).probabilities.tolist() == [[0.375, 0.125]] * 2
    rows = [[0.75, 0.25], [0.5, 0.5]]
    assert Deletions.from_prior(rows, shards=2).probabilities.tolist() == [[0.375, 0.125], [0.25, 0.25]]
    assert Deletions.from_prior([1, 0], shards=3).slices == 2


@pytest.mark.parametrize(
    ("probabilities", "message"),
    [
        ([[0.5, 0.4]], "all slices together sum to 0.9, not to 1"),
        ([0.5, 0.5], "expected m rows of L numbers"),
        (np.zeros((0, 2)), "expected m rows of L numbers"),
        ([[1.5, -0.5]], "not negative"),
        ([[np.nan, 1]], "finite"),
    ],
)
def test_probabilities_that_cannot_be_are_refused(probabilities, message):
    with pytest.raises(PlanningError, match=message):
        Deletions(probabilities=probabilities)


def test_a_prior_that_cannot_be_is_refused():
    with pytest.raises(PlanningError, match="it has 2 rows; expected 3"):
        Deletions.from_prior([[0.5, 0.5], [0.5, 0.5]], shards=3)
    with pytest.raises(PlanningError, match="does not sum to 1"):
        Deletions.from_prior([[0.5, 0.6], [0.5, 0.5]], shards=2)
