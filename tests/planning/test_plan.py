"""Plans: within the bill, on the frontier, and judged as a simulation of the whole system judges them."""

import dataclasses

import pytest

from s3t.errors import PlanningError
from s3t.planning.bound import paper_bound
from s3t.planning.deletions import Deletions
from s3t.planning.plan import Demand, plan
from s3t.planning.repairs import Policy, simulate_repairs
from s3t.sequences import Setting, select

DEMAND = Demand(deletions_per_month=5, months=6, share=0.15, budget=12, max_shards=5, max_slices=5, max_sequences=4)


@pytest.fixture(scope="module")
def found():
    return plan(DEMAND)


def test_the_proposal_is_within_the_bill_and_no_affordable_system_is_repaired_less(found):
    best = found.proposal
    assert best.cost <= DEMAND.budget
    assert best.selector in ("survival", "cyclic")
    affordable = [candidate for candidate in found.frontier if candidate.cost <= DEMAND.budget]
    assert best.repairs <= min(candidate.repairs for candidate in affordable)


def test_a_tiny_share_still_has_dead_shards_repaired():
    found = plan(dataclasses.replace(DEMAND, share=1e-12))
    assert {candidate.depth for candidate in found.frontier} == {1}
    assert found.proposal.repairs > 0


def test_the_frontier_trades_cost_for_repairs(found):
    costs = [candidate.cost for candidate in found.frontier]
    repairs = [candidate.repairs for candidate in found.frontier]
    assert costs == sorted(costs)
    assert repairs == sorted(repairs, reverse=True)
    assert len(found.frontier) > 3
    assert found.cheapest.cost == costs[0]


def test_every_system_keeps_the_share_that_is_accepted(found):
    for candidate in (*found.frontier, found.proposal):
        assert candidate.depth / (candidate.shards * candidate.slices) >= DEMAND.share - 1e-9
        assert (candidate.depth - 1) / (candidate.shards * candidate.slices) < DEMAND.share
        assert candidate.data_share >= DEMAND.share - 1e-9
        assert candidate.budget <= min(candidate.slices, DEMAND.max_sequences)


def test_a_system_is_judged_as_a_simulation_of_all_its_shards_judges_it(found):
    best = found.proposal
    orders = [select(best.selector, Setting(slices=best.slices, budget=best.budget))] * best.shards
    whole = simulate_repairs(
        orders,
        Deletions.uniform(best.shards, best.slices),
        over=DEMAND.deletions,
        policy=Policy(below=best.depth),
        trials=3000,
        seed=7,
    )
    assert best.training == whole.training_cost
    assert best.repairs == pytest.approx(whole.repairs.mean(), rel=0.05)
    assert best.repair_cost == pytest.approx(whole.cost.mean(), rel=0.05)
    assert best.mean_depth == pytest.approx(whole.mean_depth.mean(), rel=0.05)
    assert best.deletion_rate == pytest.approx(paper_bound(best.shards, best.slices, best.budget))


def test_far_ahead_repairs_go_on_as_before():
    """Beyond what is simulated, repairs come at the rate of the second half."""
    year = plan(dataclasses.replace(DEMAND, months=60, budget=1e6, max_shards=1, max_slices=3))
    decade = plan(dataclasses.replace(DEMAND, months=600, budget=1e6, max_shards=1, max_slices=3))
    assert decade.cheapest.repairs == pytest.approx(10 * year.cheapest.repairs, rel=0.05)


def test_a_bill_that_no_system_meets_leaves_no_proposal_but_says_what_is_cheapest():
    found = plan(dataclasses.replace(DEMAND, budget=0.5))
    assert found.proposal is None
    assert found.cheapest.cost > 0.5
    assert found.to_json()["proposal"] is None


def test_a_billion_deletions_are_planned_and_more_refused():
    small = dataclasses.replace(DEMAND, months=1, budget=1e9, max_shards=2, max_slices=2)
    found = plan(dataclasses.replace(small, deletions_per_month=1e9))
    million = plan(dataclasses.replace(small, deletions_per_month=1e6))
    assert found.cheapest.repairs == pytest.approx(1000 * million.cheapest.repairs, rel=0.01)
    with pytest.raises(PlanningError, match="1e\\+12 deletions in all"):
        dataclasses.replace(small, deletions_per_month=1e12)


def test_everything_that_is_out_of_range_is_told_at_once():
    with pytest.raises(PlanningError) as caught:
        Demand(deletions_per_month=0, months=-1, share=1.5, budget=float("nan"), max_shards=0, max_slices=33)
    assert len(caught.value.problems) == 6
