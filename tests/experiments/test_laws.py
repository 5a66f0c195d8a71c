"""Deletion rate and first failure: against brute force, simulation, the paper's formula, and each other."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.laws import deletion_rate, first_failure, integral, sisa_bound
from s3t.orders import Setting, cyclic
from s3t.planning.bounds import first_failure as of_equal_slices
from s3t.planning.bounds import paper_bound
from s3t.planning.simulation import Deletions, simulate

BOTH = pytest.mark.parametrize("waiting", [deletion_rate, first_failure])


def brute_force(weights, targets):
    """E[T] in fractions: every state of the system, step by step. Cells are numbered row by row."""
    total, known = sum(weights), {}

    def expected(hit):
        if any(target <= hit for target in targets):
            return Fraction(0)
        if hit not in known:
            fresh = [cell for cell in range(len(weights)) if cell not in hit and weights[cell]]
            after = sum((Fraction(weights[cell], total) * expected(hit | {cell}) for cell in fresh), Fraction(0))
            known[hit] = (1 + after) / Fraction(sum(weights[cell] for cell in fresh), total)
        return known[hit]

    return float(expected(frozenset()))


def targets_of(waiting, tops, slices):
    shards = [{shard * slices + index for index in chosen} for shard, chosen in enumerate(tops)]
    return [frozenset(set.union(*shards))] if waiting is deletion_rate else [frozenset(cells) for cells in shards]


@st.composite
def systems(draw):
    shards, slices = draw(st.sampled_from([(1, 1), (1, 4), (2, 2), (2, 3), (3, 2)]))
    tops = draw(st.lists(st.sets(st.integers(0, slices - 1), min_size=1), min_size=shards, max_size=shards))
    row = st.lists(st.integers(1, 50), min_size=slices, max_size=slices)
    return tops, np.array(draw(st.lists(row, min_size=shards, max_size=shards)))


@settings(max_examples=60)
@given(systems())
def test_any_small_system_is_that_of_brute_force(system):
    tops, weights = system
    for waiting in (deletion_rate, first_failure):
        expected = brute_force(weights.ravel().tolist(), targets_of(waiting, tops, weights.shape[1]))
        assert waiting(tops, Deletions(probabilities=weights / weights.sum())).mean == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("budget", "rate", "first"),
    [(1, 68.5, 6.0), (3, 99.5, 22.8), (6, 119.8, 38.5)],
)
def test_the_numbers_of_five_shards_of_six_slices(budget, rate, first):
    tops, deletions = [range(budget)] * 5, Deletions.uniform(5, 6)
    assert deletion_rate(tops, deletions).mean == pytest.approx(rate, abs=0.05)
    assert deletion_rate(tops, deletions).mean == pytest.approx(paper_bound(5, 6, budget), rel=1e-12)
    assert sisa_bound(5, 6) == pytest.approx(68.5)
    assert first_failure(tops, deletions).mean == pytest.approx(first, abs=0.05)
    assert first_failure(tops, deletions).mean == pytest.approx(of_equal_slices(5, 6, budget), rel=1e-9)


@pytest.mark.parametrize("prior", [None, (0.4, 0.3, 0.1, 0.1, 0.05, 0.05)])
def test_a_simulation_agrees_in_mean_and_deviation(prior):
    orders = [cyclic(Setting(slices=6, budget=3))] * 5
    deletions = Deletions.uniform(5, 6) if prior is None else Deletions.from_prior(prior, shards=5)
    system, tops = simulate(orders, deletions, trials=20_000), [{order[0] for order in chosen} for chosen in orders]
    for waiting, times in ((deletion_rate, system.deletion_rate), (first_failure, system.first_failure)):
        law = waiting(tops, deletions)
        assert abs(times.mean() - law.mean) < 5 * law.std / math.sqrt(len(times))
        assert times.std() == pytest.approx(law.std, rel=0.05)


def test_a_rare_slice_takes_long():
    rare = 1e-13
    found = deletion_rate([{0, 1}], Deletions(probabilities=[[1 - rare, rare]]))
    assert found.mean == pytest.approx(1 / rare, rel=1e-9)
    assert found.std == pytest.approx(1 / rare, rel=1e-4)


@BOTH
def test_a_top_slice_that_is_never_hit_keeps_its_shard_alive_for_ever(waiting):
    found = waiting([{0, 1}, {0, 1}], Deletions(probabilities=[[0.5, 0], [0.5, 0]]))
    assert found.mean == math.inf
    assert math.isnan(found.std)


def test_the_first_failure_is_that_of_a_shard_that_can_die():
    deletions = Deletions(probabilities=[[0.5, 0], [0.25, 0.25]])
    assert first_failure([{0, 1}, {0, 1}], deletions).mean == pytest.approx(brute_force([2, 0, 1, 1], [{2, 3}]))
    assert deletion_rate([{0, 1}, {0, 1}], deletions).mean == math.inf


def test_a_budget_more_never_lasts_shorter_and_the_first_failure_is_never_after_the_last():
    for waiting in (deletion_rate, first_failure):
        means = [waiting([range(budget)] * 4, Deletions.uniform(4, 9)).mean for budget in range(1, 10)]
        assert means == sorted(means)
    tops, deletions = [range(3)] * 4, Deletions.uniform(4, 9)
    assert first_failure(tops, deletions).mean < deletion_rate(tops, deletions).mean


def test_an_integral_that_does_not_settle_is_refused():
    with pytest.raises(ArithmeticError, match="no agreement"):
        integral(lambda times: np.where(times > 1, 0.0, 1.0), end=10.0)
