"""Simulated deletions and systems against exact numbers."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.laws import deletion_rate, first_failure
from experiments.retained import retained
from s3t.core import AsNeeded, FixedOrders, Forests, Inventory, Place, StageCosts, after_deletion, plan_deletion
from s3t.orders import Setting, cyclic, full, random_orders, survival
from s3t.planning.bounds import full_budget_depth
from s3t.planning.simulation import (
    NEVER,
    Deletions,
    _Forests,
    _Orders,
    fall_times,
    first_hits,
    retention,
    simulate,
    simulate_repairs,
)
from tests.experiments.test_retained import shards


def by_slices(shards, slices):
    """A stage costs the share of all slices that it trains on."""
    return StageCosts(tuple(depth / (shards * slices) for depth in range(1, slices + 1)))


def depths_of(system, deletions):
    """N x m, the depth of every shard after so many deletions in the system."""
    return (system.falls > deletions).sum(axis=2)


def test_shards_may_have_different_orders_and_priors():
    orders = [((0, 1, 2),), ((2, 1, 0), (1, 0, 2))]
    deletions = Deletions.from_prior([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]], shards=2)
    found = simulate(orders, deletions, trials=40_000)
    assert found.falls[:, 0, 0].mean() == pytest.approx(1 / 0.25, rel=0.03)
    assert found.deletion_rate.mean() == pytest.approx(deletion_rate([{0}, {1, 2}], deletions).mean, rel=0.02)
    assert found.first_failure.mean() == pytest.approx(first_failure([{0}, {1, 2}], deletions).mean, rel=0.02)


def test_first_hits_have_the_law_of_drawing_one_after_another():
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    times = first_hits(probabilities, trials=40_000, generator=np.random.default_rng(1))
    assert times.min(axis=1).max() == 1
    assert times.mean(axis=0) == pytest.approx(1 / probabilities, rel=0.03)
    assert all(len(set(row)) == 4 for row in times[:200].tolist())
    both = (times[:, 0] <= 2) & (times[:, 1] <= 2)
    assert both.mean() == pytest.approx(2 * 0.5 * 0.3, abs=0.01)


def test_a_depth_falls_with_the_last_prefix_that_is_spared():
    times = np.array([[3, 1, 7]])
    assert fall_times([(0, 1, 2), (2, 0, 1)], times).tolist() == [[7, 3, 1]]


def test_repairs_below_a_depth_come_and_cost_as_the_probabilities_say():
    """A shard of the order (0, 1): a hit of slice 0 leaves nothing, and both stages are trained again."""
    deletions = Deletions.from_prior([[0.75, 0.25], [0.5, 0.5]], shards=2)
    orders = FixedOrders([((0, 1),)] * 2)
    found = simulate_repairs(orders, deletions, costs=by_slices(2, 2), over=40, trials=4000, below=1)
    tops = 0.5 * 0.75 + 0.5 * 0.5
    assert found.repairs.mean() == pytest.approx(40 * tops, rel=0.02)
    assert found.cost.mean() == pytest.approx(40 * tops * (1 + 2) / 4, rel=0.02)
    assert (found.depth_counts.sum(axis=1) == 2 * 4000).all()
    assert found.depth_counts[-1] / 4000 == pytest.approx([0, 0.25 + 0.5, 0.75 + 0.5], abs=0.05)
    never = simulate_repairs(orders, deletions, costs=by_slices(2, 2), over=40, trials=50, below=0)
    assert (never.repairs.max(), never.cost.max()) == (0, 0)


@pytest.mark.parametrize("policy", [None, AsNeeded(depth=3), AsNeeded(depth=4, spares=2, spare_depth=2)])
def test_a_simulated_shard_loses_and_repairs_the_stages_that_a_runs_inventory_says(policy):
    orders = (cyclic(Setting(slices=4, budget=3)), random_orders(Setting(slices=4, budget=5, seed=1)))
    costs, chances, growth = StageCosts.declared(4), np.full((2, 4), 0.25), FixedOrders(orders)
    system = _Orders(orders, costs, 1) if policy is None else _Forests(policy, costs, chances, 2)
    if policy is not None:
        growth = Forests(policy=policy, costs=costs, chances=tuple(map(tuple, chances.tolist())))
    records = {Place(shard, index): 100 for shard in range(2) for index in range(4)}
    state = Inventory(generation=0, growth=growth, records=records, alive={})
    state = replace(state, alive=dict.fromkeys(state.missing(), "key"))
    assert system.training == pytest.approx(costs.of(stage.prefix for stage in state.alive))
    generator = random.Random(2)
    for _ in range(80):
        shard, index = generator.randrange(2), generator.randrange(4)
        losses = {Place(shard, index): 1}
        state = after_deletion(state, losses, plan_deletion(state, losses))
        system.hit(np.array([shard]), np.array([index]))
        assert system.depths().tolist() == list(state.depths())
        if policy is not None or generator.random() < 0.4:
            missing = [stage for stage in state.missing() if stage.shard == shard]
            assert system.repair(np.array([shard]))[0] == pytest.approx(costs.of(stage.prefix for stage in missing))
            state = replace(state, alive={**state.alive, **dict.fromkeys(missing, "key")})
            assert system.depths().tolist() == list(state.depths())


def test_repair_below_a_depth_keeps_every_shard_at_it():
    orders = [survival(Setting(slices=6, budget=3))] * 2
    uniform = Deletions.uniform(2, 6)
    found = simulate_repairs(FixedOrders(orders), uniform, costs=by_slices(2, 6), over=60, below=3, trials=50)
    assert found.depth_counts[:, :3].sum() == 0
    assert found.repairs.min() > 0


def test_what_is_retained_is_the_share_of_shards_that_are_so_deep():
    orders = [cyclic(Setting(slices=4, budget=2))] * 3
    system = simulate(orders, Deletions.from_prior([0.5, 0.25, 0.25, 0], shards=3), trials=500, seed=3)
    numbers = [0, 1, 2, 5, 5, 40]
    kept = system.retained(numbers)
    assert kept.shape == (6, 5)
    for row, number in enumerate(numbers):
        depths = depths_of(system, number)
        for depth in range(5):
            assert kept[row, depth] == pytest.approx((depths >= depth).mean(), abs=1e-12)


@pytest.mark.parametrize("rare", [1e-20, 5e-324])
def test_what_is_too_rare_to_be_counted_never_happens(rare):
    times = first_hits(np.array([1.0, rare]), trials=200, generator=np.random.default_rng(0))
    assert (times[:, 0] == 1).all()
    assert (times[:, 1] > 2**50).all()
    assert (times[:, 1] == NEVER).any()


def test_a_system_is_settled_after_the_last_loss_that_can_happen():
    orders = [[(0, 1, 2), (2, 1, 0)]]
    mortal = simulate(orders, Deletions.uniform(1, 3), trials=50)
    assert (mortal.settled == mortal.deletion_rate).all()
    # Slice 2 is never hit: one slice stays, the others fall with the first hits of 0 and 1.
    immortal = simulate(orders, Deletions.from_prior([0.5, 0.5, 0], shards=1), trials=50)
    assert (immortal.deletion_rate == NEVER).all()
    assert (immortal.settled == immortal.falls[:, 0, 1]).all()
    assert (simulate(orders, Deletions.from_prior([0, 1, 0], shards=1), trials=5).settled == 1).all()


def test_a_prior_is_normalised_and_holds_in_every_shard_or_each_has_its_own():
    assert Deletions(probabilities=np.array([[0.5 + 5e-10, 0.5]])).probabilities.sum() == 1
    assert Deletions.from_prior([0.75, 0.25], shards=2).probabilities.tolist() == [[0.375, 0.125]] * 2
    rows = [[0.75, 0.25], [0.5, 0.5]]
    assert Deletions.from_prior(rows, shards=2).probabilities.tolist() == [[0.375, 0.125], [0.25, 0.25]]
    assert Deletions.from_prior([1, 0], shards=3).slices == 2


@settings(max_examples=25)
@given(shards(most_slices=6), st.integers(1, 8))
def test_simulated_retention_agrees_with_the_exact_sum_within_its_interval(shard, deletions):
    orders, prior = shard
    exact = retained(orders, [deletions], prior=prior)
    simulated = retention(orders, [deletions], prior=prior, trials=4000)
    assert exact.exact
    assert np.abs(exact.probabilities - simulated).max() < 0.05
    assert abs(exact.expected_depth[0] - simulated[0, 1:].sum()) < 0.2


@pytest.mark.parametrize("prior", [None, (0.5, 0.25, 0.25, 0.0)])
def test_all_orders_keep_every_slice_that_is_not_hit(prior):
    found = retention(full(Setting(slices=4, budget=24)), [0, 1, 3], prior=prior)
    assert found[:, 1:].sum(axis=1) == pytest.approx(full_budget_depth([0, 1, 3], prior or [0.25] * 4), abs=0.02)
