"""When a deletion is followed by a repair."""

import pytest

from s3t.core import FixedOrders, Inventory, Place, Stage, stages_of
from s3t.recipe import BelowDepth, repair_due

ORDERS = (((0, 1),), ((0, 1),))
RECORDS = {Place(shard, index): 3 for shard in range(2) for index in range(2)}


def inventory(*dead):
    alive = {stage: "key" for stage in stages_of(ORDERS) if stage not in dead}
    return Inventory(generation=1, growth=FixedOrders(ORDERS), records=RECORDS, alive=alive)


WHOLE = inventory()
SHALLOW = inventory(Stage(0, (0, 1)))
ONE_DEAD = inventory(Stage(0, (0,)), Stage(0, (0, 1)))
ALL_DEAD = inventory(*stages_of(ORDERS))
STATES = {"whole": WHOLE, "shallow": SHALLOW, "one dead": ONE_DEAD, "all dead": ALL_DEAD}


@pytest.mark.parametrize(
    ("policy", "due"),
    [
        ("manual", []),
        ("eager", ["shallow", "one dead", "all dead"]),
        ("on-exhaustion", ["all dead"]),
        (BelowDepth(below_depth=1), ["one dead", "all dead"]),
        (BelowDepth(below_depth=2), ["shallow", "one dead", "all dead"]),
    ],
    ids=str,
)
def test_a_policy_asks_for_a_repair_in_its_states_and_no_others(policy, due):
    assert [name for name, state in STATES.items() if repair_due(policy, state, trained=True)] == due
    assert not any(repair_due(policy, state, trained=False) for state in STATES.values())
