"""The cheapest repair as needed that meets a level of service; and what is said when none does."""

import re
from dataclasses import replace

import pytest

from s3t.errors import PlanningError
from s3t.forests import AsNeeded, StageCosts
from s3t.planning.deletions import Deletions
from s3t.planning.forests import cost_of_a_hit, simulate_growth
from s3t.planning.service import Level, System, bound, cheapest, served
from testing.optimum import repaired

TIMED = StageCosts((1.3247547, 3.27448, 7.4459374, 12.825001))
SQUARES = StageCosts(tuple(float(depth**2) for depth in range(1, 7)))
SYSTEM = System(shards=5, costs=SQUARES, hours=2.0, deletions_per_month=100, months=6)


def policies(slices):
    for depth in range(1, slices + 1):
        yield AsNeeded(depth=depth, spares=0)
        for spares in range(1, slices):
            yield from (AsNeeded(depth=depth, spares=spares, spare_depth=each) for each in range(1, depth + 1))


@pytest.mark.parametrize("costs", [TIMED, StageCosts((9.0, 1.0, 1.0, 1.0))])
def test_the_cost_of_a_hit_is_that_of_the_solved_chain_and_of_simulation(costs):
    for policy in policies(4):
        if policy.spares <= 2:
            assert cost_of_a_hit(policy, costs) == pytest.approx(repaired(policy, costs).cost, rel=1e-6)
    policy = AsNeeded(depth=3, spares=3, spare_depth=2)
    found = simulate_growth(policy, costs, Deletions.uniform(3, 4), over=200, trials=300)
    assert cost_of_a_hit(policy, costs) == pytest.approx(found.cost.mean() / 200, rel=0.01)


@pytest.mark.parametrize("shape", [0, 1, 2])
@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_no_other_policy_meets_a_level_for_less(shape, after):
    costs = StageCosts(tuple(float(depth**shape) for depth in range(1, 7)))
    system = replace(SYSTEM, costs=costs)
    for depth in range(1, 7):
        level = Level(mean_depth=depth, after_deletion=after)
        best = served(cheapest(level, system), system)
        assert (best.mean_depth, best.after_deletion) >= (depth, after)
        assert best.after_deletion >= after
        for other in (served(policy, system) for policy in policies(6)):
            if other.mean_depth >= depth and other.after_deletion >= after:
                assert best.cost <= other.cost + 1e-9
                assert best.repairs <= other.repairs + 1e-9
        assert bound(best.mean_depth, system) <= best.repairs + 1e-9


def test_costs_are_in_full_trainings_of_all_shards_and_hours_a_day_over_the_months():
    policy = AsNeeded(depth=6, spares=0)
    found = served(policy, SYSTEM)
    assert found.training == pytest.approx((1 + 4 + 9 + 16 + 25 + 36) / 36)
    assert found.repairs == pytest.approx(600 * (1 + 8 + 27 + 64 + 125 + 216) / 6 / (5 * 36))
    assert SYSTEM.hours_a_day(found.repairs) == pytest.approx(2 * found.repairs / 182.625)
    assert replace(SYSTEM, hours=None).hours_a_day(1.0) is None


def test_a_stage_of_sisa_passes_all_blocks():
    # The costs of `experiments/cost_by_slices`.
    assert SYSTEM.sisa().costs.by_depth == (6, 12, 18, 24, 30, 36)
    assert SYSTEM.sisa().full == SYSTEM.full
    assert served(AsNeeded(depth=4), SYSTEM.sisa()).cost > served(AsNeeded(depth=4), SYSTEM).cost


def told(level, system=SYSTEM):
    with pytest.raises(PlanningError) as caught:
        cheapest(level, system)
    return list(caught.value.problems)


@pytest.mark.parametrize("limit", ["hours_a_day", "trainings"])
@pytest.mark.parametrize("after", [0, 1, 3])
def test_beyond_a_limit_it_says_how_much_is_enough_and_which_level_is_within(limit, after):
    level = Level(mean_depth=6, after_deletion=after)
    policy = cheapest(level, SYSTEM)
    cost = served(policy, SYSTEM)
    whole = SYSTEM.hours_a_day(cost.repairs) if limit == "hours_a_day" else cost.cost
    (problem,) = told(replace(level, **{limit: whole / 2}))
    enough = float(re.search(r"allow ([\d.]+)", problem).group(1))
    assert whole <= enough <= 1.01 * whole
    assert cheapest(replace(level, **{limit: enough}), SYSTEM) == policy
    depth = int(re.search(r"mean depth of at most (\d)", problem).group(1))
    assert cheapest(replace(level, mean_depth=depth, **{limit: whole / 2}), SYSTEM).depth == depth
    with pytest.raises(PlanningError):
        cheapest(replace(level, mean_depth=depth + 1, **{limit: whole / 2}), SYSTEM)


def test_a_guarantee_that_is_too_dear_is_lowered_last():
    least = served(cheapest(Level(mean_depth=3, after_deletion=3), SYSTEM), SYSTEM).cost
    (problem,) = told(Level(mean_depth=3, after_deletion=3, trainings=0.9 * least))
    assert "or ask for a mean depth of at most 3 and for depth 2 after a deletion" in problem
    (problem,) = told(Level(mean_depth=2, after_deletion=1, trainings=0.01))
    assert problem.endswith("nothing that serves costs so little")


def test_a_level_that_no_policy_serves_says_all_that_is_wrong():
    low, high, hours = told(Level(mean_depth=7, after_deletion=4, hours_a_day=0))
    assert low == "mean depth 7: a shard has 6 slices; ask for at most 6"
    assert "keep 3 after any one deletion; ask for at most that, or take 8 slices" in high
    assert hours == "0 hours a day: give a number above 0"
    assert told(Level(mean_depth=float("nan"), after_deletion=-1, trainings=-1)) == [
        "mean depth nan: give a number above 0",
        "depth -1 after a deletion: give a number from 0",
        "-1 full trainings: give a number above 0",
    ]
    assert "how long stages take is not known" in told(Level(hours_a_day=1), replace(SYSTEM, hours=None))[0]


def test_a_system_that_is_out_of_range_says_all_that_is_wrong():
    with pytest.raises(PlanningError) as caught:
        System(shards=0, costs=StageCosts((1.0,) * 257), hours=0, deletions_per_month=-1, months=float("inf"))
    assert len(caught.value.problems) == 5
    with pytest.raises(PlanningError, match="more than 1,000,000,000 deletions"):
        replace(SYSTEM, deletions_per_month=1e9)
