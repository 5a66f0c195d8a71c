"""What is computed without a simulation, against solved chains, simulations, and all states that there are."""

from itertools import combinations

import pytest

from s3t.core import AsNeeded, StageCosts
from s3t.orders import Setting, select
from s3t.planning.bounds import cost_of_a_hit, least_after_deletion
from s3t.planning.simulation import Deletions, simulate_repairs
from testing.optimum import repaired

TIMED = StageCosts((1.3247547, 3.27448, 7.4459374, 12.825001))


def policies(slices):
    for depth in range(1, slices + 1):
        yield AsNeeded(depth=depth, spares=0)
        for spares in range(1, slices):
            yield from (AsNeeded(depth=depth, spares=spares, spare_depth=each) for each in range(1, depth + 1))


@pytest.mark.parametrize("costs", [TIMED, StageCosts((9.0, 1.0, 1.0, 1.0))])
def test_the_cost_of_a_hit_is_that_of_the_solved_chain_and_of_simulation(costs):
    solved = [policy for policy in policies(4) if policy.spares <= 1 and policy.spare_depth != 3]
    for policy in (*solved, AsNeeded(depth=3, spares=2, spare_depth=2)):
        assert cost_of_a_hit(policy, costs) == pytest.approx(repaired(policy, costs).cost, rel=1e-6)
    policy = AsNeeded(depth=3, spares=3, spare_depth=2)
    found = simulate_repairs(policy, Deletions.uniform(3, 4), costs=costs, over=200, trials=300)
    assert cost_of_a_hit(policy, costs) == pytest.approx(found.cost.mean() / 200, rel=0.01)


def depth(orders, hit):
    return max(next((place for place, index in enumerate(order) if index in hit), len(order)) for order in orders)


@pytest.mark.parametrize(
    ("selector", "slices"),
    [("cyclic", 1), ("cyclic", 2), ("cyclic", 4), ("cyclic", 5), ("survival", 3), ("survival", 4)],
)
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
