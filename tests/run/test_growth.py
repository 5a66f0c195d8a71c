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


@pytest.mark.integration
@pytest.mark.parametrize("what", ["statements", "file calls", "looks"])
@pytest.mark.parametrize("step", ["training a stage", "a prediction", "a status"])
def test_a_step_makes_no_more_calls_among_many_stages(step, what, costs):
    assert costs[LARGE][step].get(what, 0) <= 1.2 * costs[SMALL][step].get(what, 0) + 2


@pytest.mark.parametrize("table", ["stages", "slices", "notes"])
def test_training_a_stage_reads_no_more_rows_among_many(table, costs):
    small, large = (costs[shards]["training a stage"].get(f"rows of {table}", 0) for shards in (SMALL, LARGE))
    assert large <= 1.5 * small + 4


@pytest.mark.parametrize("step", ["a prediction", "a status"])
def test_a_prediction_and_a_status_read_no_stage(step, costs):
    assert costs[LARGE][step].get("rows of stages", 0) == 0
    assert costs[LARGE][step].get("rows", 0) <= costs[SMALL][step].get("rows", 0) + 2


def test_a_deletion_reads_no_stage_and_asks_no_more_often(costs):
    small, large = costs[SMALL]["a deletion"], costs[LARGE]["a deletion"]
    assert large.get("rows of stages", 0) == 0
    assert large["statements"] <= 1.5 * small["statements"] + 20  # it waits for others, and looks again meanwhile


@pytest.mark.parametrize("what", ["statements", "file calls", "looks"])
def test_a_later_deletion_makes_no_more_calls_than_the_first(what, costs):
    first, later = costs[LARGE]["a deletion"], costs[LARGE]["the thirtieth deletion"]
    assert later.get(what, 0) <= 1.5 * first.get(what, 0) + 20
