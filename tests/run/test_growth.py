"""What one step costs does not grow with how many there have been: counted in rows, statements and calls, not in time.

A cost that grew with the stages that are there would be quadratic in all of them.
"""

import pytest

import s3t
from s3t.core import stages_of
from testing import tiny
from testing.counting import answer_nothing, counted, training_nothing

SMALL, LARGE = 2, 10
"""Numbers of shards, of 3 slices and 3 orders each: 18 and 90 stages."""


@pytest.fixture(scope="module")
def costs(state_of_all, tmp_path_factory, text_model):
    return {
        shards: costs_of(shards, tmp_path_factory.mktemp("growth") / "run", text_model) for shards in (SMALL, LARGE)
    }


def costs_of(shards, folder, model):
    recipe = tiny.recipe(
        model,
        partition={"shards": shards, "slices": 3},
        sequences={"budget": 3, "selector": "cyclic"},
        training={"epochs": 0},
        deletion={"erase_within": 3600},
    )
    table, costs = tiny.text_table(60), {}
    with training_nothing(), s3t.Run.create(folder, recipe=recipe, data=table) as run:
        with counted() as trained:
            run.train()
        stages = len(stages_of(run.inventory().orders))
        costs["training a stage"] = {what: count / stages for what, count in trained.items()}
        answer_nothing(run)
        for name, act in (
            ("a prediction", lambda: answer_nothing(run)),
            ("a status", run.status),
            ("a deletion", lambda: run.delete(records=[table.id[0]])),
        ):
            with counted() as found:
                act()
            costs[name] = dict(found)
        run.train()
        for record in table.id[1:30]:
            run.delete(records=[record])
        with counted() as found:
            run.delete(records=[table.id[30]])
        costs["the thirtieth deletion"] = dict(found)
    return costs


@pytest.mark.parametrize("step", ["training a stage", "a prediction", "a status"])
def test_a_step_makes_no_more_calls_and_reads_no_more_rows_among_many_stages(step, costs):
    small, large = costs[SMALL][step], costs[LARGE][step]
    for what in ("statements", "file calls", "looks"):
        assert large.get(what, 0) <= 1.2 * small.get(what, 0) + 2
    if step == "training a stage":
        for table in ("stages", "slices", "notes"):
            assert large.get(f"rows of {table}", 0) <= 1.5 * small.get(f"rows of {table}", 0) + 4
    else:
        assert large.get("rows of stages", 0) == 0
        assert large.get("rows", 0) <= small.get("rows", 0) + 2


def test_a_deletion_reads_no_stage_and_asks_no_more_often(costs):
    small, large = costs[SMALL]["a deletion"], costs[LARGE]["a deletion"]
    assert large.get("rows of stages", 0) == 0
    assert large["statements"] <= 1.5 * small["statements"] + 20  # it waits for others, and looks again meanwhile


def test_a_later_deletion_makes_no_more_calls_than_the_first(costs):
    first, later = costs[LARGE]["a deletion"], costs[LARGE]["the thirtieth deletion"]
    for what in ("statements", "file calls", "looks"):
        assert later.get(what, 0) <= 1.5 * first.get(what, 0) + 20
