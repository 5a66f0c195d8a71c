"""What serves a level, side by side."""

from itertools import combinations

import pytest

from s3t.errors import PlanningError
from s3t.forests import StageCosts
from s3t.planning.compared import compare, compared_orders, least_after_deletion
from s3t.planning.deletions import Deletions
from s3t.planning.repairs import Policy, simulate_repairs
from s3t.planning.service import Level, System
from s3t.sequences import Setting, select

SYSTEM = System(shards=3, costs=StageCosts((1.0, 4.0, 9.0, 16.0, 25.0)), hours=1.0, deletions_per_month=50, months=6)


class Steps:
    count = 0

    def advance(self, count):
        self.count += count


@pytest.fixture(scope="module")
def found():
    steps = Steps()
    compared = compare(Level(mean_depth=3, after_deletion=1), SYSTEM, steps=steps)
    assert steps.count == len(compared_orders(5)) == len(compared.all_fixed)
    return compared


def depth(orders, hit):
    return max(next((place for place, index in enumerate(order) if index in hit), len(order)) for order in orders)


@pytest.mark.parametrize("slices", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("selector", ["cyclic", "survival"])
def test_fixed_orders_keep_what_the_worst_hits_before_leave(slices, selector):
    for budget in range(1, slices + 1):
        orders = select(selector, Setting(slices=slices, budget=budget))
        for below in range(1, slices + 1):
            # Every set of slices that may be hit before the shard is repaired, and every hit after it.
            unrepaired = (
                set(hit)
                for count in range(slices + 1)
                for hit in combinations(range(slices), count)
                if depth(orders, set(hit)) >= below
            )
            least = min(depth(orders, hit | {index}) for hit in unrepaired for index in range(slices))
            assert least_after_deletion(orders, below) == least


def test_the_cheapest_fixed_orders_meet_the_level_too(found):
    level = found.level
    meeting = [
        each.service.cost
        for each in found.all_fixed
        if each.service.mean_depth >= level.mean_depth and each.service.after_deletion >= level.after_deletion
    ]
    assert found.fixed.service.cost == min(meeting)
    assert found.fixed.service.after_deletion >= 1
    assert found.bound < found.service.repairs < min(found.sisa.repairs, found.fixed.service.repairs)


def test_fixed_orders_are_judged_as_a_simulation_of_all_shards_judges_them(found):
    best = found.fixed
    orders = [select("cyclic", Setting(slices=5, budget=best.budget))] * 3
    policy = Policy(below=best.below)
    whole = simulate_repairs(
        orders, Deletions.uniform(3, 5), over=300, policy=policy, trials=300, seed=5, costs=SYSTEM.costs
    )
    assert best.service.training == pytest.approx(whole.training_cost / SYSTEM.full)
    assert best.service.repairs == pytest.approx(whole.cost.mean() / SYSTEM.full, rel=0.05)
    assert best.service.mean_depth == pytest.approx(whole.mean_depth.mean(), rel=0.05)


def test_curves_pass_through_the_proposal_and_stay_above_the_bound(found):
    curves = found.curves()
    assert [each.depth for each in curves] == [1, 2, 3, 4, 5]
    assert curves[2].as_needed == found.service.repairs
    assert curves[2].sisa == found.sisa.repairs
    assert all(each.bound < each.as_needed < each.sisa for each in curves[:4])


def test_the_document_has_hours_a_day_where_they_are_known(found):
    document = found.to_json()
    assert document["proposal"]["depth"] == 3
    for name in ("proposal", "sisa", "fixed"):
        assert document[name]["hours_a_day"] == pytest.approx(document[name]["repairs"] / 182.625)


def test_below_no_slices_nothing_is_repaired():
    with pytest.raises(PlanningError, match="give 1 to 2"):
        least_after_deletion([(0, 1)], 0)
