"""Forecasts against exact expectations over all states."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from s3t.errors import PlanningError
from s3t.planning import Deletions, deletion_rate, first_failure, forecast, simulate
from s3t.sequences import Setting, cyclic, random_orders


def depth_of(prefixes, hit):
    return max((next((k for k, index in enumerate(p) if index in hit), len(p)) for p in prefixes), default=0)


def expected(live, deletions, stops):
    """E[deletions until stops(depths)], over all states of what is hit and how many records are left."""
    shards, slices = deletions.probabilities.shape
    cells = [(shard, index) for shard in range(shards) for index in range(slices)]

    @functools.cache
    def ahead(hit, left):
        if stops([depth_of(prefixes, {i for s, i in hit if s == shard}) for shard, prefixes in enumerate(live)]):
            return 0.0
        weights = {}
        for cell, count in zip(cells, left, strict=True):
            weight = deletions.probabilities[cell]
            if deletions.records is not None:
                weight = weight * count / deletions.records[cell] if count else 0.0
            if weight:
                weights[cell] = weight
        total, value, stays = sum(weights.values()), 1.0, 0.0
        for number, cell in enumerate(cells):
            if cell not in weights:
                continue
            after = left if deletions.records is None else (*left[:number], left[number] - 1, *left[number + 1 :])
            state = (hit | {cell}, after)
            if state == (hit, left):
                stays += weights[cell] / total
            else:
                value += weights[cell] / total * ahead(*state)
        return value / (1 - stays)

    start = () if deletions.records is None else tuple(int(n) for n in deletions.records.reshape(-1))
    return ahead(frozenset(), start or (0,) * len(cells))


@st.composite
def states(draw, replacement):
    shards, slices = draw(st.sampled_from([(1, 3), (2, 2), (1, 4), (2, 3)]))
    live = []
    for seed in range(shards):
        orders = random_orders(Setting(slices=slices, budget=draw(st.integers(1, 2)), seed=seed))
        live.append([order[: draw(st.integers(1, slices))] for order in orders])
    numbers = st.lists(st.integers(1, 3), min_size=shards * slices, max_size=shards * slices)
    counts = np.reshape(draw(numbers), (shards, slices))
    if replacement:
        return live, Deletions(probabilities=counts / counts.sum())
    return live, Deletions.from_records(counts, replacement=False)


def assert_exact(live, deletions):
    found = forecast(live, deletions)
    assert found.exact
    assert found.living_shards == len(live)
    dead = expected(live, deletions, lambda depths: min(depths) == 0)
    assert found.next_shard_dies == pytest.approx(dead, rel=1e-6)
    assert found.all_shards_die == pytest.approx(expected(live, deletions, lambda d: max(d) == 0), rel=1e-6)
    for depth, value in found.depth_falls_below.items():
        below = expected(live, deletions, lambda depths, depth=depth: min(depths) < depth)
        assert value == pytest.approx(below, rel=1e-6), depth


@settings(max_examples=30)
@given(states(replacement=True))
def test_with_replacement_it_is_the_expectation_over_all_states(state):
    assert_exact(*state)


@settings(max_examples=30)
@given(states(replacement=False))
def test_without_replacement_too(state):
    assert_exact(*state)


def test_a_whole_system_has_its_deletion_rate_and_first_failure_ahead():
    orders = [cyclic(Setting(slices=6, budget=3))] * 4
    deletions = Deletions.uniform(4, 6)
    tops = [{order[0] for order in chosen} for chosen in orders]
    found = forecast(orders, deletions)
    assert found.all_shards_die == pytest.approx(deletion_rate(tops, deletions).mean)
    assert found.next_shard_dies == pytest.approx(first_failure(tops, deletions).mean)
    simulated = simulate(orders, deletions, trials=20_000)
    for depth, value in found.depth_falls_below.items():
        assert value == pytest.approx(simulated.first_below(depth).mean(), rel=0.03)


def test_dead_shards_take_deletions_but_are_waited_for_no_more():
    found = forecast([[(0, 1)], [], [()]], Deletions.uniform(3, 2))
    assert found.next_shard_dies == pytest.approx(6)
    assert found.all_shards_die == pytest.approx(6)
    assert found.depth_falls_below == {2: pytest.approx(3)}
    assert found.living_shards == 1


def test_a_dead_system_has_nothing_ahead():
    found = forecast([[], []], Deletions.uniform(2, 3))
    assert found.to_json() == {
        "next_shard_dies": None,
        "all_shards_die": None,
        "depth_falls_below": {},
        "living_shards": 0,
        "exact": True,
    }


def test_what_nothing_can_hit_never_dies():
    found = forecast([[(0, 1), (1, 0)]], Deletions.from_prior([0.0, 1.0], shards=1))
    assert found.next_shard_dies is None
    assert found.depth_falls_below == {2: pytest.approx(1)}


def test_where_no_exact_sum_is_short_enough_it_is_simulated(monkeypatch):
    import sys

    live = [cyclic(Setting(slices=6, budget=6))] * 2
    exact = forecast(live, Deletions.uniform(2, 6))
    monkeypatch.setattr(sys.modules["s3t.planning.forecast"], "_TERMS", 3)
    simulated = forecast(live, Deletions.uniform(2, 6))
    assert exact.exact
    assert not simulated.exact
    for depth, value in exact.depth_falls_below.items():
        assert simulated.depth_falls_below[depth] == pytest.approx(value, rel=0.03)


def test_simulated_forecasts_delete_every_record_once(monkeypatch):
    import sys

    live = [cyclic(Setting(slices=3, budget=3))] * 2
    for records, weights in ((np.full((2, 3), 2), None), (np.array([[1, 2, 1], [3, 1, 1]]), np.array([9, 1, 4]))):
        if weights is None:
            deletions = Deletions.from_records(records, replacement=False)
        else:
            chances = records * weights
            deletions = Deletions(probabilities=chances / chances.sum(), records=records)
        monkeypatch.setattr(sys.modules["s3t.planning.forecast"], "_TERMS", 0)
        found = forecast(live, deletions)
        assert not found.exact
        for depth, value in found.depth_falls_below.items():
            below = expected(live, deletions, lambda depths, depth=depth: min(depths) < depth)
            assert value == pytest.approx(below, rel=0.02), depth


def test_many_shards_are_no_trouble():
    found = forecast([cyclic(Setting(slices=2, budget=2))] * 2000, Deletions.uniform(2000, 2))
    assert found.depth_falls_below[2] == pytest.approx(1)


def test_prefixes_that_do_not_fit_are_refused_at_once():
    with pytest.raises(PlanningError) as caught:
        forecast([[(0, 0)], [(2,)]], Deletions.uniform(3, 2))
    assert len(caught.value.problems) == 3


def test_at_least_one_deletion_is_needed_and_people_see_so_many_digits_as_are_meant():
    for records in (None, np.array([[5, 5, 5, 5]]), np.array([[1, 1, 1, 1]])):
        ahead = forecast([[(0, 1, 2, 3)]], Deletions(probabilities=np.full((1, 4), 0.25), records=records))
        assert ahead.depth_falls_below[4] >= 1
        shown = ahead.to_json()
        assert shown["depth_falls_below"]["4"] == 1.0
        assert all(len(str(value)) <= 8 for value in shown["depth_falls_below"].values())
    alone = Deletions(probabilities=np.array([[1.0]]), records=np.array([[5]]))
    assert forecast([[(0,)]], alone).next_shard_dies == 1.0
