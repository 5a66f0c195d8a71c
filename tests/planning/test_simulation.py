"""Simulated systems against exact numbers and against a plain loop over deletions."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from experiments.laws import deletion_rate, first_failure
from experiments.retained import retained
from s3t.core import AsNeeded, FixedOrders, Forests, Inventory, Place, StageCosts, after_deletion, plan_deletion
from s3t.orders import Setting, cyclic, random_orders, survival
from s3t.planning.simulation import (
    NEVER,
    Deletions,
    _Forests,
    _Orders,
    fall_times,
    first_hits,
    simulate,
    simulate_repairs,
)

PRIOR = (0.4, 0.3, 0.2, 0.1)


def by_slices(shards, slices):
    """A stage costs the share of all slices that it trains on."""
    return StageCosts(tuple(depth / (shards * slices) for depth in range(1, slices + 1)))


def tops(orders):
    return [{order[0] for order in chosen} for chosen in orders]


def depths_of(system, deletions):
    """N x m, the depth of every shard after so many deletions in the system."""
    return (system.falls > deletions).sum(axis=2)


def plainly(orders, probabilities, over, seed, below):
    """One system, deletion after deletion: depths after each, number and cost of repairs."""
    generator = random.Random(seed)
    shards, slices = len(orders), len(orders[0][0])
    cells = [(shard, index) for shard in range(shards) for index in range(slices)]
    hit = [set() for _ in range(shards)]

    def depth(shard):
        return max(next((k for k, index in enumerate(order) if index in hit[shard]), slices) for order in orders[shard])

    def repair(shard):
        nodes = {order[:k] for order in orders[shard] for k in range(1, slices + 1)}
        lost = sum(len(node) for node in nodes if hit[shard] & set(node))
        hit[shard] = set()
        return lost

    depths, repairs, cost = [], 0, 0
    for _ in range(over):
        shard, index = generator.choices(cells, weights=probabilities)[0]
        hit[shard].add(index)
        if depth(shard) < below:
            cost, repairs = cost + repair(shard), repairs + 1
        depths.append([depth(shard) for shard in range(shards)])
    return np.asarray(depths), repairs, cost / (shards * slices)


@pytest.mark.integration
@pytest.mark.parametrize("budget", [1, 2, 4, 6])
def test_simulated_rates_are_within_2_percent_of_exact_ones(budget):
    orders = [survival(Setting(slices=6, budget=budget))] * 5
    deletions = Deletions.uniform(5, 6)
    found = simulate(orders, deletions, trials=20_000)
    assert found.deletion_rate.mean() == pytest.approx(deletion_rate(tops(orders), deletions).mean, rel=0.02)
    assert found.first_failure.mean() == pytest.approx(first_failure(tops(orders), deletions).mean, rel=0.02)


def test_depths_are_those_of_the_exact_sum():
    orders = random_orders(Setting(slices=4, budget=5, seed=2))
    found = simulate([orders], Deletions.from_prior(PRIOR, shards=1), trials=20_000)
    exact = retained(orders, [0, 1, 3], prior=PRIOR)
    for row, count in enumerate((0, 1, 3)):
        assert depths_of(found, count).mean() == pytest.approx(exact.expected_depth[row], abs=0.05)
    assert (found.falls[:, :, 3] <= found.falls[:, :, 0]).all()


def test_shards_may_have_different_orders_and_priors():
    orders = [((0, 1, 2),), ((2, 1, 0), (1, 0, 2))]
    deletions = Deletions.from_prior([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]], shards=2)
    found = simulate(orders, deletions, trials=40_000)
    assert found.falls[:, 0, 0].mean() == pytest.approx(1 / 0.25, rel=0.03)
    assert found.deletion_rate.mean() == pytest.approx(deletion_rate(tops(orders), deletions).mean, rel=0.02)


def test_what_cannot_be_hit_never_falls():
    found = simulate([((0, 1), (1, 0))], Deletions.from_prior([0.0, 1.0], shards=1), trials=50)
    assert (found.deletion_rate == NEVER).all()
    assert (found.falls[:, :, 1] == 1).all()
    assert (depths_of(found, 10**6) == 1).all()


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


@pytest.mark.integration
@pytest.mark.parametrize("when", [{"below": 0}, {"below": 1}, {"below": 3}])
def test_repaired_systems_behave_as_in_a_plain_loop(when):
    orders = [random_orders(Setting(slices=4, budget=3, seed=1)), random_orders(Setting(slices=4, budget=2, seed=5))]
    deletions = Deletions.from_prior([PRIOR, PRIOR[::-1]], shards=2)
    found = simulate_repairs(FixedOrders(orders), deletions, costs=by_slices(2, 4), over=15, trials=4000, **when)
    plain = [plainly(orders, deletions.probabilities.reshape(-1), 15, seed, **when) for seed in range(1500)]
    depths = np.asarray([row[0] for row in plain])
    for name, mine, theirs in (
        ("repairs", found.repairs, np.asarray([row[1] for row in plain])),
        ("cost", found.cost, np.asarray([row[2] for row in plain])),
        ("depth", found.mean_depth, depths.mean(axis=(1, 2))),
    ):
        error = 5 * math.hypot(mine.std() / math.sqrt(len(mine)), theirs.std() / math.sqrt(len(theirs)))
        assert abs(mine.mean() - theirs.mean()) <= error + 1e-12, name
    after = found.depth_counts[1:] @ np.arange(5) / (4000 * 2)
    assert after == pytest.approx(depths.mean(axis=(0, 2)), abs=0.2)
    assert (found.depth_counts.sum(axis=1) == 8000).all()


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


def training_cost(orders):
    shards, slices = len(orders), len(orders[0][0])
    uniform = Deletions.uniform(shards, slices)
    return simulate_repairs(FixedOrders(orders), uniform, costs=by_slices(shards, slices), over=0).training_cost


def test_training_costs_every_stage_once():
    assert training_cost([((0, 1, 2),)]) == pytest.approx(6 / 3)
    assert training_cost([((0, 1, 2), (0, 2, 1))]) == pytest.approx((1 + 2 + 3 + 2 + 3) / 3)  # they share stage (0,)
    assert training_cost([cyclic(Setting(slices=4, budget=2))] * 7) == pytest.approx(2 * 10 / 4)


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


@pytest.mark.integration
def test_a_big_system_is_simulated_in_small_portions():
    # 60,000 cells: with 5,000 histories at once, an array between would take 2.4 gigabytes.
    deletions = Deletions.uniform(60, 1000)
    system = simulate([[tuple(range(1000))]] * 60, deletions, trials=70, seed=0)
    assert (system.falls >= 1).all()
    assert (np.diff(system.falls, axis=2) <= 0).all()
    assert len(np.unique(system.deletion_rate)) > 35


@pytest.mark.parametrize("rare", [1e-20, 1e-300, 5e-324])
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
