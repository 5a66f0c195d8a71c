"""A level of service in the place of chains."""

import pytest

import s3t
from s3t.core import AsNeeded
from s3t.recipe import recipe_from
from testing import tiny
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


def test_a_run_that_is_opened_again_has_the_chains_of_its_level(tmp_path):
    model = tiny.make_text_model(tmp_path / "model")
    recipe = tiny.recipe(model, partition={"slices": 3}) | {"sequences": {}}
    recipe["deletion"] = {"repair": {"policy": "as-needed", "level": {"mean_depth": 2, "after_deletion": 1}}}
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table(12)):
        pass
    with s3t.Run.open(tmp_path / "run") as run:
        assert numbers_of(run.recipe.deletion.repair) == (2, 1, 1)
        assert run.status().missing == 2 * 3
