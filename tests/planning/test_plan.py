"""Plans: within the limits, on the frontier, and judged as a simulation of the whole system judges them."""

import pytest
from pydantic import ValidationError

from s3t.core import FixedOrders, StageCosts
from s3t.orders import Setting, select
from s3t.planning.bounds import cost_of_a_hit, paper_bound
from s3t.planning.plan import Demand, plan
from s3t.planning.simulation import Deletions, simulate_repairs
from tests.planning.test_bounds import policies

ORDERS = {"deletions_per_month": 5, "months": 6, "share": 0.15, "budget": 12}
GRID = {"max_shards": 3, "max_slices": 4, "max_sequences": 3}
DEMAND = Demand(**ORDERS, **GRID)
CHAINS = {"deletions_per_month": 100, "months": 6, "shards": 5, "slices": 6, "training_hours": 2}


def asked(**changes):
    return Demand(**{**ORDERS, **GRID, **changes})


def level(**changes):
    return plan(Demand(**{**CHAINS, "mean_depth": 1, **changes}))


@pytest.fixture(scope="module")
def found():
    return plan(DEMAND)


@pytest.mark.integration
def test_the_proposal_is_within_the_bill_and_no_affordable_system_is_repaired_less(found):
    best = found.proposal
    assert best.cost <= DEMAND.budget
    assert best.selector in ("survival", "cyclic")
    affordable = [candidate for candidate in found.frontier if candidate.cost <= DEMAND.budget]
    assert best.repairs <= min(candidate.repairs for candidate in affordable)


def test_the_frontier_trades_cost_for_repairs_and_keeps_the_share_that_is_accepted(found):
    costs = [candidate.cost for candidate in found.frontier]
    repairs = [candidate.repairs for candidate in found.frontier]
    assert costs == sorted(costs)
    assert repairs == sorted(repairs, reverse=True)
    assert len(found.frontier) > 3
    assert found.cheapest.cost == costs[0]
    for candidate in (*found.frontier, found.proposal):
        assert candidate.depth / (candidate.shards * candidate.slices) >= DEMAND.share - 1e-9
        assert (candidate.depth - 1) / (candidate.shards * candidate.slices) < DEMAND.share
        assert candidate.data_share >= DEMAND.share - 1e-9
        assert candidate.budget <= min(candidate.slices, DEMAND.max_sequences)


@pytest.mark.integration
def test_a_system_is_judged_as_a_simulation_of_all_its_shards_judges_it(found):
    best = found.proposal
    orders = [select(best.selector, Setting(slices=best.slices, budget=best.budget))] * best.shards
    whole = simulate_repairs(
        FixedOrders(orders),
        Deletions.uniform(best.shards, best.slices),
        costs=StageCosts.declared(best.slices).in_trainings(best.shards),
        over=DEMAND.deletions,
        below=best.depth,
        trials=3000,
        seed=7,
    )
    assert best.training == pytest.approx(whole.training_cost)
    assert best.repairs == pytest.approx(whole.repairs.mean(), rel=0.05)
    assert best.repair_cost == pytest.approx(whole.cost.mean(), rel=0.05)
    assert best.mean_depth == pytest.approx(whole.mean_depth.mean(), rel=0.05)
    assert best.deletion_rate == pytest.approx(paper_bound(best.shards, best.slices, best.budget))


def test_a_bill_that_no_system_meets_leaves_no_proposal_but_says_what_is_cheapest():
    found = plan(asked(budget=0.5, max_shards=2, max_slices=2))
    assert found.proposal is None
    assert found.cheapest.cost > 0.5
    assert found.recipe == {}


@pytest.mark.integration
def test_a_billion_deletions_are_planned_at_the_rate_of_a_million_and_more_refused():
    small = {"months": 1, "budget": 1e9, "max_shards": 2, "max_slices": 2}
    found = plan(asked(**small, deletions_per_month=1e9))
    million = plan(asked(**small, deletions_per_month=1e6))
    assert found.cheapest.repairs == pytest.approx(1000 * million.cheapest.repairs, rel=0.01)
    with pytest.raises(ValidationError, match="more than 1,000,000,000 deletions in all"):
        asked(**small | {"months": 2}, deletions_per_month=1e9)


def test_everything_that_is_out_of_range_is_told_at_once():
    with pytest.raises(ValidationError) as caught:
        Demand(deletions_per_month=0, months=-1, share=1.5, budget=float("nan"), max_shards=0, max_slices=33)
    assert caught.value.error_count() == 6


def test_given_shards_and_slices_are_the_only_ones():
    found = plan(asked(shards=3, slices=4))
    assert {(system.shards, system.slices) for system in (*found.frontier, found.proposal)} == {(3, 4)}


@pytest.mark.parametrize(("shape", "after"), [(0, 0), (1, 1), (2, 2), (0, 3)])
def test_no_other_chains_meet_a_level_for_less(shape, after):
    seconds = tuple(float(depth**shape) for depth in range(1, 7))
    costs = StageCosts(seconds).in_trainings(5)
    for depth in range(1, 7):
        found = level(mean_depth=depth, depth_after_deletion=after, training_hours=None, stage_seconds=seconds)
        best = found.proposal
        assert best.depth >= depth
        assert best.depth_after_deletion >= after
        for other in policies(6):
            if other.depth >= depth and other.least_after_hit(6) >= after:
                assert best.repair_cost <= 600 * cost_of_a_hit(other, costs) + 1e-9
        assert found.bound <= best.repair_cost + 1e-9


def test_chains_cost_full_trainings_of_all_shards_and_hours_a_day_over_the_months():
    best = level(mean_depth=6, stage_seconds=(1, 4, 9, 16, 25, 36), training_hours=None).proposal
    assert best.training == pytest.approx((1 + 4 + 9 + 16 + 25 + 36) / 36)
    assert best.repair_cost == pytest.approx(600 * (1 + 8 + 27 + 64 + 125 + 216) / 6 / (5 * 36))
    assert best.hours_a_day == pytest.approx(best.repair_cost * 5 * 36 / 3600 / 182.625)
    assert level(mean_depth=6).proposal.hours_a_day == pytest.approx(2 * best.repair_cost / 182.625)
    assert level(mean_depth=6, training_hours=None).proposal.hours_a_day is None
    assert best.stages == 5 * 6


def test_where_deletions_do_not_wait_for_repairs_more_spares_stand_by_or_nothing_is_proposed():
    """A deletion a second, stages of a second and more."""
    fast = {"deletions_per_month": 86_400 * 30.4375, "months": 0.001, "shards": 4, "training_hours": None}
    seconds = (1.0, 2.5, 4, 6, 9, 12)
    best = level(**fast, depth_after_deletion=1, stage_seconds=seconds).proposal
    assert best.repair["spares"] > 1
    assert 0 < best.share_dead <= 0.0001
    assert level(**fast, depth_after_deletion=1, stage_seconds=[9 * each for each in seconds]).proposal is None
    slow = level(depth_after_deletion=1, training_hours=None, stage_seconds=seconds).proposal
    assert (slow.repair["spares"], slow.share_dead) == (1, 0.0)
    assert level(**fast, stage_seconds=seconds).proposal.share_dead is None  # dead shards are accepted


@pytest.mark.parametrize(("limit", "after"), [("hours_a_day", 0), ("budget", 1), ("budget", 3)])
def test_beyond_a_limit_nothing_is_proposed_but_it_says_what_is_enough_and_which_depths_cost_less(limit, after):
    found = level(mean_depth=6, depth_after_deletion=after)
    assert found.cheapest == found.proposal
    enough = found.cheapest.hours_a_day if limit == "hours_a_day" else found.cheapest.cost
    short = level(mean_depth=6, depth_after_deletion=after, **{limit: enough / 2})
    assert short.proposal is short.bound is None
    assert short.cheapest == found.cheapest
    assert level(mean_depth=6, depth_after_deletion=after, **{limit: enough}).proposal == found.proposal
    within = [system for system in short.frontier if short.demand.allows(system)]
    less = level(mean_depth=within[-1].depth, depth_after_deletion=after, **{limit: enough / 2})
    assert less.proposal == within[-1]
    assert [system.depth for system in short.frontier] == list(range(max(after, 1), 7))


def told(**changes):
    with pytest.raises(ValidationError) as caught:
        level(**changes)
    return str(caught.value)


def test_a_level_that_no_chains_serve_says_why():
    assert "mean depth 7: a shard has 6 slices; ask for at most 6" in told(mean_depth=7)
    assert "keep 3 after any one deletion; ask for at most that, or take 8 slices" in told(depth_after_deletion=4)
    assert "share 0.3: each of 5 shards has 0.2 of all records" in told(share=0.3)
    assert "how long training takes is not known" in told(hours_a_day=1, training_hours=None)
    assert "give --shards and --slices" in told(shards=None)
    assert "have room for 1 to 2" in told(layers=2)
    with pytest.raises(ValidationError, match="give --budget or --hours-a-day, or a level of service"):
        Demand(deletions_per_month=1)
    with pytest.raises(ValidationError, match=r"share 0.1: each of 20 shards has 0.05"):
        Demand(deletions_per_month=1, budget=1, shards=20)
