"""`s3t plan` for a level of service, as somebody types it."""

import json
from functools import partial

import pytest
import yaml

from s3t.planning.plan import Demand
from s3t.planning.plan import plan as planned
from testing import tiny
from tests.cli.typed import document, invoke, problems

SMALL = ("--shards", 3, "--slices", 4, "--deletions-per-month", 20, "--months", 6)
LEVEL = ("--mean-depth", 3, "--depth-after-deletion", 1)
SECONDS = ("--stage-seconds", "36,360,720,3600")

plan = partial(document, "plan")
wrong = partial(problems, "plan")


@pytest.mark.parametrize(
    ("options", "demand"),
    [
        (LEVEL, {"mean_depth": 3, "depth_after_deletion": 1}),
        ((*LEVEL, "--training-hours", 6), {"mean_depth": 3, "depth_after_deletion": 1, "training_hours": 6}),
        (
            ("--depth-after-deletion", 2, *SECONDS),
            {"depth_after_deletion": 2, "stage_seconds": (36, 360, 720, 3600)},
        ),
        (
            ("--mean-depth", 1, "--hours-a-day", 9, "--budget", 200, "--training-hours", 3),
            {"mean_depth": 1, "hours_a_day": 9, "budget": 200, "training_hours": 3},
        ),
    ],
)
def test_the_document_is_that_of_the_library(options, demand):
    found = plan(*SMALL, *options)
    expected = planned(Demand(shards=3, slices=4, deletions_per_month=20, months=6, **demand))
    assert found == json.loads(expected.model_dump_json())
    assert found["recipe"]["partition"] == {"shards": 3, "slices": 4}
    assert found["recipe"]["adapter"] == {"layers_per_slice": 3}
    assert found["recipe"]["deletion"]["repair"]["depth"] == found["proposal"]["depth"]


def test_people_read_recipe_lines_and_what_other_depths_cost():
    shown = invoke("plan", *SMALL, *LEVEL, *SECONDS)
    assert shown.exit_code == 0, shown.stderr
    assert "120 deletions in 6 months" in shown.stdout
    assert "  deletion: {repair: {policy: as-needed, depth: 3, spares: 1, spare_depth: 1}}\n" in shown.stdout
    words = " ".join(shown.stdout.split())
    assert "a main chain of 3 slices and a spare of 1" in words
    assert "repairs of any policy of the proposal's mean depth cost at least" in words
    assert "hours a day in all" in words
    depths = [line.split()[6] for line in shown.stdout.splitlines() if line.startswith("│ 3")]
    assert depths == ["1", "2", "3", "4"]


def test_repairs_that_take_more_than_a_day_has_are_told_of():
    """People ask for 20 deletions an hour, and each costs the last stage's hour."""
    asked = ("--shards", 3, "--slices", 4, "--deletions-per-month", 14_400, "--months", 0.1, *LEVEL, *SECONDS)
    hours = plan(*asked)["proposal"]["hours_a_day"]
    assert hours > 24
    words = " ".join(invoke("plan", *asked).stdout.split())
    assert f"Repair with {-(-hours // 24):.0f} processes at least" in words
    assert "method: ridge" in words
    assert "more than a day has" not in invoke("plan", *SMALL, *LEVEL, *SECONDS).stdout


def test_beyond_the_limits_it_says_what_is_enough():
    shown = invoke("plan", *SMALL, *LEVEL, "--training-hours", 24, "--hours-a-day", 0.01)
    found = plan(*SMALL, *LEVEL, "--training-hours", 24, "--hours-a-day", 0.01)
    assert shown.exit_code == 0
    assert found["proposal"] is None
    assert f"{found['cheapest']['hours_a_day']:.3g} hours of repairs a day. Raise the limits" in shown.stdout


def test_the_lines_pass_init_and_shards_come_from_the_recipe(tmp_path):
    model = tiny.make_text_model(tmp_path / "model", layers=4)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny.recipe(model, partition={"shards": 2, "slices": 4})))
    found = plan("--recipe", path, "--deletions-per-month", 20, *LEVEL)
    assert found["recipe"]["partition"] == {"shards": 2, "slices": 4}
    recipe = yaml.safe_load(path.read_text())
    recipe.pop("sequences", None)
    path.write_text(yaml.safe_dump(recipe | found["recipe"]))
    tiny.text_table(40).to_csv(tmp_path / "records.csv", index=False)
    status = document("init", tmp_path / "run", "--data", tmp_path / "records.csv", "--recipe", path)
    assert len(status["shards"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mean-depth", 5), "mean depth 5: a shard has 4 slices; ask for at most 4"),
        (("--depth-after-deletion", 3), "keep 2 after any one deletion; ask for at most that, or take 6 slices"),
        (("--depth-after-deletion", -1), "--depth-after-deletion -1: give a number greater than or equal to 0"),
        (("--hours-a-day", 1), "hours a day: how long training takes is not known"),
        (("--slices", 13), "13 slices: the model's layers have room for 1 to 12"),
        (("--shards", 0), "--shards 0: give a number greater than or equal to 1"),
        (("--stage-seconds", "1,2"), "2 stage seconds for 4 slices"),
        (("--stage-seconds", "1,2,3,0"), "--stage-seconds 0.0: give a number greater than or equal to 0.000001"),
        (("--stage-seconds", "1,2,3,x"), "number 4 is 'x', not a number"),
        (("--share", 0.5), "share 0.5: each of 3 shards has 0.333 of all records"),
        ((*SECONDS, "--training-hours", 2), "stage seconds and training hours both say"),
    ],
)
def test_wrong_input_is_one_clear_error(arguments, said):
    (problem,) = wrong(*SMALL, *LEVEL, *arguments)
    assert said in problem


def test_what_is_missing_is_said():
    (problem,) = wrong("--deletions-per-month", 20, *LEVEL)
    assert "give --shards and --slices" in problem
    (problem,) = wrong("--deletions-per-month", 20)
    assert problem.startswith("give --budget or --hours-a-day, or a level of service: --mean-depth")
