"""Simulated forests against the rules of one shard, the exact solution and the bound."""

import math

import numpy as np
import pytest

from s3t.core import AsNeeded, StageCosts, lacking, prefixes_of, without
from s3t.planning.bounds import least_cost
from s3t.planning.simulation import Deletions, _Forests, share_dead, simulate_repairs
from testing.optimum import optimum, repaired

TIMED = StageCosts((1.3247547, 3.27448, 7.4459374, 12.825001))
"""Seconds of `experiments/thousand_requests`."""


def chains_of(forest, row):
    """The chains that an array holds, by their places."""
    chains = []
    for place, length in zip(forest.place[row], forest.length[row], strict=True):
        order = np.argsort(place, kind="stable")[:length]
        assert place[order].tolist() == list(range(length))
        chains.append(tuple(order.tolist()))
    return chains


UNIFORM, SKEWED = (1.0,) * 6, (0.1, 0.3, 0.1, 0.2, 0.2, 0.1)


@pytest.mark.parametrize(
    ("policy", "chances"),
    [
        (AsNeeded(depth=4), UNIFORM),
        (AsNeeded(depth=5, spare_depth=3), SKEWED),
        (AsNeeded(depth=6, spares=2, spare_depth=2), UNIFORM),
        (AsNeeded(depth=3, spares=0), SKEWED),
        (AsNeeded(depth=4, spares=3, spare_depth=4), SKEWED),
    ],
)
def test_all_systems_at_once_do_what_the_policy_says_of_each(policy, chances):
    slices, rows = 6, 20
    costs = StageCosts(tuple(float(k * k) for k in range(1, slices + 1)))
    generator = np.random.default_rng(1)
    likely = generator.permuted(np.tile(chances, (rows, 1)), axis=1)
    forest = _Forests(policy, costs, likely, rows)
    alive = [policy.planned((), slices=slices, chances=row) for row in likely]
    assert forest.training == pytest.approx(sum(costs.of(prefixes_of(chains)) for chains in alive))
    for step in range(40):
        spent = forest.repair(np.arange(rows))
        for row in range(rows):
            planned = policy.planned(alive[row], slices=slices, chances=likely[row])
            assert spent[row] == pytest.approx(costs.of(lacking(alive[row], planned)))
            assert sorted(chains_of(forest, row)) == sorted(planned), step
            alive[row] = planned
        hits = generator.integers(0, slices, rows)
        forest.hit(np.arange(rows), hits)
        alive = [without(chains, int(index)) for chains, index in zip(alive, hits, strict=True)]


def test_a_simulation_agrees_with_the_long_run():
    policy = AsNeeded(depth=4, spare_depth=2)
    exact = repaired(policy, TIMED)
    found = simulate_repairs(policy, Deletions.uniform(5, 4), costs=TIMED, over=400, trials=400)
    assert found.cost.mean() / 400 == pytest.approx(exact.cost, rel=0.01)
    assert found.mean_depth.mean() == exact.mean_depth == 4
    assert found.dead_share == 0
    assert found.least_hit_depth >= 1
    assert found.training_cost == pytest.approx(5 * (TIMED.of(prefixes_of([(0, 1, 2, 3), (3, 2)]))))


@pytest.mark.integration
@pytest.mark.parametrize("slices", [3, 4, 5])
@pytest.mark.parametrize("shape", ["flat", "linear", "squares"])
def test_the_policy_is_within_five_percent_of_the_optimum(slices, shape):
    power = {"flat": 0, "linear": 1, "squares": 2}[shape]
    costs = StageCosts(tuple(float(depth**power) for depth in range(1, slices + 1)))
    policies = [
        AsNeeded(depth=depth, spare_depth=spare) for depth in range(1, slices + 1) for spare in range(1, depth + 1)
    ]
    ours = [repaired(policy, costs) for policy in policies]
    for price in (0.05 / costs.by_depth[-1], 0.5 / costs.by_depth[-1], 2 / costs.by_depth[-1]):
        best = optimum(costs, price=price)
        # At equal gain, the cost that our best policy has above the optimum's.
        above = (best.gain(price) - max(one.gain(price) for one in ours)) / price
        assert -1e-6 <= above <= 0.05 * best.cost


def test_the_optimum_with_the_times_measured_is_the_policy():
    for depth, price in ((4, 0.05), (3, 0.12), (2, 0.3)):
        assert optimum(TIMED, price=price).cost == pytest.approx(repaired(AsNeeded(depth=depth), TIMED).cost)


def test_no_policy_is_below_the_bound_and_one_chain_reaches_it():
    for depth in (1, 2, 3, 4):
        bound = least_cost(TIMED, depth)
        assert repaired(AsNeeded(depth=depth, spares=0), TIMED).cost == pytest.approx(bound)
        assert repaired(AsNeeded(depth=depth), TIMED).cost > bound
    for price in (0.05, 0.12, 0.3, 1.0):
        best = optimum(TIMED, price=price, least_after_hit=0)
        assert best.cost >= least_cost(TIMED, best.mean_depth) - 1e-9


def test_the_bound_mixes_depths_where_deep_stages_are_cheap():
    costs = StageCosts((9.0, 1.0, 1.0))
    assert least_cost(costs, 0) == 0
    assert least_cost(costs, 1) == pytest.approx(least_cost(costs, 3) / 3)  # depth 3 for a third of the time


def test_unlikely_slices_lower_the_bound():
    assert least_cost(TIMED, 2, chances=[0.7, 0.1, 0.1, 0.1]) < least_cost(TIMED, 2)


@pytest.mark.parametrize("depth", [2, 3])
def test_a_prior_is_worth_what_it_saves(depth):
    """Chains that know the prior cost less than any that do not, and no less than the bound."""
    prior = [0.6, 0.2, 0.15, 0.05]
    deletions = Deletions.from_prior(prior, shards=2)
    policy = AsNeeded(depth=depth)
    found = simulate_repairs(policy, deletions, costs=TIMED, over=300, trials=200)
    assert found.mean_depth.mean() == depth
    assert found.least_hit_depth >= 1
    cost = found.cost.mean() / 300
    assert least_cost(TIMED, depth, chances=prior) < cost < 0.5 * repaired(policy, TIMED).cost


def test_a_single_slice_is_dead_until_no_deletion_comes_while_it_is_trained():
    """It lives for the time between two deletions, b in the mean; then tries of s seconds take b (exp(s / b) - 1)."""
    chain, rate = AsNeeded(depth=1, spares=0), {"shards": 1, "most": 1.0, "seed": 3}
    for seconds in (0.2, 1.0, 2.0):
        found = share_dead(chain, StageCosts((seconds,)), between=1.0, **rate)
        assert found == pytest.approx(1 - math.exp(-seconds), rel=0.05)
    assert share_dead(chain, StageCosts((1.0,)), between=1.0, **rate | {"most": 0.5}) is None


def test_spares_stand_by_for_what_comes_before_a_repair_and_many_shards_count_as_a_hundred_slower_ones():
    costs, rate = StageCosts((1.5, 3.0, 5.0, 7.0)), {"between": 3.0, "most": 1.0, "seed": 0}
    dead = [share_dead(AsNeeded(depth=1, spares=spares), costs, shards=6, **rate) for spares in range(4)]
    assert dead == sorted(dead, reverse=True)
    assert dead[0] > 0.01 > 0.0005 > dead[3]
    slower = StageCosts(tuple(2 * seconds for seconds in costs.by_depth))
    many = share_dead(AsNeeded(depth=2), costs, shards=200, **rate)
    assert many == share_dead(AsNeeded(depth=2), slower, shards=100, **rate | {"between": 6.0}) > 0
