"""Deletions: what probabilities and counts mean, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from s3t.errors import InputError, PlanningError
from s3t.planning import Deletions


def test_uniform_deletions_hit_every_slice_alike():
    deletions = Deletions.uniform(5, 6)
    assert (deletions.shards, deletions.slices) == (5, 6)
    assert (deletions.probabilities == 1 / 30).all()
    assert deletions.records is None


def test_one_prior_holds_in_every_shard_and_shards_are_equally_likely():
    deletions = Deletions.from_prior([0.5, 0.3, 0.2], shards=4)
    assert deletions.probabilities.shape == (4, 3)
    np.testing.assert_allclose(deletions.probabilities.sum(axis=1), 0.25)
    np.testing.assert_allclose(deletions.probabilities[2], [0.125, 0.075, 0.05])


def test_every_shard_can_have_its_own_prior():
    deletions = Deletions.from_prior([[0.5, 0.5], [1, 0]], shards=2)
    assert deletions.probabilities.tolist() == [[0.25, 0.25], [0.5, 0.0]]


def test_without_a_prior_every_record_is_equally_likely():
    deletions = Deletions.from_records([[1, 2], [3, 4]], replacement=False)
    np.testing.assert_allclose(deletions.probabilities, [[0.1, 0.2], [0.3, 0.4]])
    assert deletions.records.tolist() == [[1, 2], [3, 4]]


def test_with_replacement_the_counts_leave_only_their_probabilities():
    deletions = Deletions.from_records([[1, 2], [3, 4]], replacement=True)
    np.testing.assert_allclose(deletions.probabilities, [[0.1, 0.2], [0.3, 0.4]])
    assert deletions.records is None


def test_a_prior_overrules_the_counts_and_both_are_kept():
    deletions = Deletions.from_records([[1, 2], [3, 4]], replacement=False, prior=[0.9, 0.1])
    np.testing.assert_allclose(deletions.probabilities, [[0.45, 0.05], [0.45, 0.05]])
    assert deletions.records.tolist() == [[1, 2], [3, 4]]


def test_an_empty_slice_is_fine_if_it_cannot_be_hit_or_records_come_back():
    unhit = [
        Deletions.from_records([[0, 2]], replacement=False),
        Deletions.from_records([[0, 2]], replacement=False, prior=[0, 1]),
    ]
    for deletions in unhit:
        assert deletions.probabilities.tolist() == [[0, 1]]
        assert deletions.records.tolist() == [[0, 2]]
    coming_back = Deletions.from_records([[0, 2]], replacement=True, prior=[0.5, 0.5])
    assert coming_back.probabilities.tolist() == [[0.5, 0.5]]
    assert coming_back.records is None


@given(st.lists(st.lists(st.integers(0, 1000), min_size=3, max_size=3), min_size=1, max_size=5))
def test_probabilities_of_all_cells_sum_to_one(rows):
    if np.any(rows):
        assert Deletions.from_records(rows, replacement=False).probabilities.sum() == pytest.approx(1, abs=1e-12)


def test_a_prior_that_is_nearly_normalised_is_normalised():
    deletions = Deletions.from_prior([0.5, 0.5 + 5e-10], shards=2)
    assert abs(deletions.probabilities.sum() - 1) < 1e-15


def test_nothing_can_be_changed_afterwards():
    given_numbers = np.array([[0.5, 0.5]])
    counts = np.array([[3, 4]])
    deletions = Deletions(probabilities=given_numbers, records=counts)
    with pytest.raises(ValueError, match="read-only"):
        deletions.probabilities[0, 0] = 1
    with pytest.raises(ValueError, match="read-only"):
        deletions.records[0, 0] = 1
    given_numbers[0, 0] = counts[0, 0] = 9
    assert deletions.probabilities[0, 0] == 0.5
    assert deletions.records[0, 0] == 3


@pytest.mark.parametrize(
    ("prior", "shards", "message"),
    [
        ([0.5, 0.6], 2, "it sums to 1.1, not to 1"),
        ([[0.5, 0.5], [0.5, 0.4]], 2, "row 1 sums to 0.9, not to 1"),
        ([1.5, -0.5], 2, "number 1 is negative"),
        ([float("nan"), 1], 2, "number 0 is not finite"),
        ([[1, float("inf")], [float("inf"), 1]], 2, r"numbers \(0, 1\), \(1, 0\) are not finite"),
        ([[-1, -2, -3, -4, 11]], 1, r"numbers \(0, 0\), \(0, 1\), \(0, 2\) and 1 more are negative"),
        ([[0.5, 0.5]], 3, "it has 1 rows; expected 3, one a shard, or L numbers for all"),
        ([], 2, "expected L numbers, or 2 rows of L"),
        ([[[1.0]]], 1, "expected L numbers, or 1 rows of L"),
        ([[0.5, 0.5], [1]], 2, "rows of equal length"),
        (["much", "little"], 2, "expected numbers"),
        ([1.0], 0, "the number of shards is 0, not at least 1"),
    ],
)
def test_a_prior_that_is_none_is_refused(prior, shards, message):
    with pytest.raises(PlanningError, match=message):
        Deletions.from_prior(prior, shards=shards)


@pytest.mark.parametrize(
    ("records", "prior", "message"),
    [
        ([[1, -1]], None, r"number \(0, 1\) is negative"),
        ([[1, 1.5]], None, r"number \(0, 1\) is not a whole number"),
        ([1, 2], None, "expected m rows of L counts"),
        ([[]], None, "expected m rows of L counts"),
        ([[0, 0]], None, "there are no records at all"),
        ([[1, 2]], [0.2, 0.3, 0.5], "it has 3 numbers a row; expected 2, one a slice"),
        ([[1, 2], [3, 4]], [[0.5, 0.5]], "it has 1 rows; expected 2, one a shard, or 2 numbers"),
        ([[3, 0]], [0.5, 0.5], "slice 1 of shard 0 has probability 0.5 and no records"),
    ],
)
def test_counts_that_cannot_be_are_refused(records, prior, message):
    with pytest.raises(PlanningError, match=message):
        Deletions.from_records(records, replacement=False, prior=prior)


@pytest.mark.parametrize(
    ("probabilities", "records", "message"),
    [
        ([[0.5, 0.4]], None, "all cells together sum to 0.9, not to 1"),
        ([0.5, 0.5], None, "expected m rows of L numbers"),
        ([[0.5, 0.5]], [[1, 2, 3]], r"records have the shape \(1, 3\), probabilities \(1, 2\)"),
    ],
)
def test_probabilities_that_cannot_be_are_refused(probabilities, records, message):
    with pytest.raises(PlanningError, match=message):
        Deletions(probabilities=probabilities, records=records)


def test_all_problems_are_reported_at_once():
    with pytest.raises(InputError) as caught:
        Deletions(probabilities=[[-0.5, np.nan]], records=[[-1, 2]])
    assert len(caught.value.problems) == 3
    with pytest.raises(PlanningError) as caught:
        Deletions.uniform(0, 0)
    assert caught.value.problems == (
        "the number of shards is 0, not at least 1",
        "the number of slices is 0, not at least 1",
    )
    with pytest.raises(PlanningError) as caught:
        Deletions.from_prior([[0.5, 0.6], [0.7, 0.7]], shards=2)
    assert len(caught.value.problems) == 2
