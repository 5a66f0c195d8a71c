"""A level of service in the place of chains, and when a deletion is followed by a repair."""

import pytest

from s3t.core import AsNeeded, FixedOrders, Inventory, Place, Stage, stages_of
from s3t.recipe import BelowDepth, recipe_from, repair_due
from tests.recipe.test_recipe import content, problems_of


def with_repair(slices=6, **repair):
    return {
        "partition": {"shards": 2, "slices": slices},
        "sequences": {},
        "deletion": {"repair": {"policy": "as-needed", **repair}},
    }


def numbers_of(chains):
    return chains.depth, chains.spares, chains.spare_depth


@pytest.mark.parametrize(
    ("level", "chains"),
    [
        ({}, AsNeeded(depth=1, spares=0)),
        ({"mean_depth": 2.5}, AsNeeded(depth=3, spares=0)),
        ({"mean_depth": 4, "after_deletion": 1}, AsNeeded(depth=4)),
        ({"after_deletion": 3}, AsNeeded(depth=3, spare_depth=3)),
    ],
)
def test_the_cheapest_chains_of_a_level_are_in_the_recipe_that_a_run_keeps(level, chains):
    recipe = recipe_from(content() | with_repair(level=level))
    assert numbers_of(recipe.deletion.repair) == numbers_of(chains)
    assert recipe.growth(()).policy is recipe.deletion.repair
    kept = recipe.model_dump(mode="json", by_alias=True)
    assert kept["deletion"]["repair"]["depth"] == chains.depth
    assert recipe_from(kept).deletion == recipe.deletion


@pytest.mark.parametrize(
    ("repair", "said"),
    [
        ({"level": {"after_deletion": 4}}, "after_deletion 4: chains of 6 slices with spares of 4 keep 3"),
        ({"level": {"mean_depth": 3}, "depth": 2}, "deletion.repair.level.mean_depth 3: depth is 2; take one"),
        ({"level": {"after_deletion": 1}, "depth": 2, "spares": 0}, "deletion.repair.level.after_deletion 1: chains"),
        ({"level": {"mean_depth": 7}}, "depth 7: a shard has 6 slices"),
        ({"level": {"mean_depth": 0}}, "deletion.repair.level.mean_depth: Input should be greater than 0"),
        ({"level": {"depth": 2}}, "deletion.repair.level.depth: no such field"),
        ({}, "deletion.repair.depth: Field required"),
    ],
)
def test_a_level_that_chains_do_not_meet_is_one_problem(repair, said):
    (problem,) = problems_of(**with_repair(**repair))
    assert said in problem


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
