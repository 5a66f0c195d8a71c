"""Forecasts against exact expectations over all states."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.laws import deletion_rate, first_failure
from s3t.orders import Setting, cyclic, random_orders
from s3t.planning.forecast import forecast
from s3t.planning.simulation import Deletions


def depth_of(prefixes, hit):
    return max((next((k for k, index in enumerate(p) if index in hit), len(p)) for p in prefixes), default=0)


def expected(live, weights, records, stops):
    """E[deletions until stops(depths)], over all states of what is hit and how many records are left."""
    cells = list(np.ndindex(*weights.shape))

    @functools.cache
    def ahead(hit, left):
        if stops([depth_of(prefixes, {i for s, i in hit if s == shard}) for shard, prefixes in enumerate(live)]):
            return 0.0
        chances = {cell: weights[cell] * left[n] / records[cell] for n, cell in enumerate(cells) if left[n]}
        total, value = sum(chances.values()), 1.0
        for number, cell in enumerate(cells):
            if chances.get(cell):
                after = (*left[:number], left[number] - 1, *left[number + 1 :])
                value += chances[cell] / total * ahead(hit | {cell}, after)
        return value

    return ahead(frozenset(), tuple(records.reshape(-1).tolist()))


@st.composite
def states(draw):
    shards, slices = draw(st.sampled_from([(1, 3), (2, 2), (1, 4), (2, 3)]))
    live = []
    for seed in range(shards):
        orders = random_orders(Setting(slices=slices, budget=draw(st.integers(1, 2)), seed=seed))
        live.append([order[: draw(st.integers(1, slices))] for order in orders])
    numbers = st.lists(st.integers(1, 3), min_size=shards * slices, max_size=shards * slices)
    records = np.reshape(draw(numbers), (shards, slices))
    return live, records * np.reshape(draw(numbers), (shards, slices)), records


@settings(max_examples=30)
@given(states())
def test_it_is_the_expectation_over_all_states(state):
    live, weights, records = state
    found = forecast(live, weights, records)
    assert found.living_shards == len(live)
    dead = expected(live, weights, records, lambda depths: min(depths) == 0)
    assert found.next_shard_dies == pytest.approx(dead, rel=0.02)
    assert found.all_shards_die == pytest.approx(expected(live, weights, records, lambda d: max(d) == 0), rel=0.02)
    for depth, value in found.depth_falls_below.items():
        below = expected(live, weights, records, lambda depths, depth=depth: min(depths) < depth)
        assert value == pytest.approx(below, rel=0.02), depth


def test_a_whole_system_with_many_records_has_its_deletion_rate_and_first_failure_ahead():
    tops, deletions = [range(3)] * 4, Deletions.uniform(4, 6)
    found = forecast([cyclic(Setting(slices=6, budget=3))] * 4, np.ones((4, 6)), np.full((4, 6), 10**6))
    assert found.all_shards_die == pytest.approx(deletion_rate([{0, 2, 4}] * 4, deletions).mean, rel=0.02)
    assert found.next_shard_dies == pytest.approx(first_failure(tops, deletions).mean, rel=0.02)


def test_eight_of_ten_histories_lie_between_its_bounds():
    """Two shards of a chain each, of which a deletion hits a slice with the chance of 1 in 40."""
    found = forecast([[tuple(range(20))]] * 2, np.ones((2, 20)), np.full((2, 20), 10**6))
    numbers = np.arange(1, 1000)
    for between, chances in (
        (found.next_shard_dies_between, 1 - (38 / 40) ** numbers),
        (found.all_shards_die_between, 1 - 2 * (39 / 40) ** numbers + (38 / 40) ** numbers),
        (found.depth_falls_below_between[2], 1 - (36 / 40) ** numbers),
    ):
        assert between == pytest.approx(numbers[np.searchsorted(chances, (0.1, 0.9))], abs=1, rel=0.1)


def test_dead_shards_take_deletions_but_are_waited_for_no_more():
    found = forecast([[(0, 1)], [], [()]], np.ones((3, 2)), np.full((3, 2), 10**6))
    assert found.next_shard_dies == found.all_shards_die == pytest.approx(6, rel=0.03)
    assert found.depth_falls_below == {2: pytest.approx(3, rel=0.03)}
    assert found.living_shards == 1


def test_a_dead_system_has_nothing_ahead():
    found = forecast([[], []], np.zeros((2, 3)), np.zeros((2, 3), dtype=np.int64)).to_json()
    assert not any(found.values()), found


def test_what_nothing_can_hit_never_dies():
    found = forecast([[(0, 1), (1, 0)]], np.array([[0.0, 1.0]]), np.array([[3, 3]]))
    assert found.next_shard_dies is found.next_shard_dies_between is None
    assert found.depth_falls_below == {2: 1.0}


def test_many_shards_are_no_trouble():
    found = forecast([cyclic(Setting(slices=2, budget=2))] * 200, np.ones((200, 2)), np.ones((200, 2), dtype=np.int64))
    assert found.depth_falls_below[2] == 1


def test_people_see_so_many_digits_as_are_meant():
    shown = forecast([[(0, 1, 2, 3)]], np.ones((1, 4)), np.full((1, 4), 5)).to_json()
    assert all(len(str(value)) <= 6 for value in shown["depth_falls_below"].values())
