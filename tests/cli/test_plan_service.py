"""`s3t plan` for a level of service, as somebody types it."""

import json
from functools import partial

import pytest
import yaml

from s3t.forests import StageCosts
from s3t.planning.compared import compare
from s3t.planning.rounding import rounded
from s3t.planning.service import Level, System
from testing import tiny
from tests.cli.typed import document, invoke, problems
from tests.drawing.pictures import assert_is_picture, texts

SMALL = ("--shards", 3, "--slices", 4, "--deletions-per-month", 20, "--months", 6)
LEVEL = ("--mean-depth", 3, "--never-dead")
SECONDS = ("--stage-seconds", "36,360,720,3600")

plan = partial(document, "plan")
wrong = partial(problems, "plan")


def expected(level, costs, hours):
    system = System(shards=3, costs=StageCosts(costs), hours=hours, deletions_per_month=20, months=6)
    return json.loads(json.dumps(rounded(compare(level, system).to_json())))


@pytest.mark.parametrize(
    ("asked", "level", "costs", "hours"),
    [
        (LEVEL, Level(mean_depth=3, after_deletion=1), (1, 4, 9, 16), None),
        ((*LEVEL, "--training-hours", 6), Level(mean_depth=3, after_deletion=1), (1, 4, 9, 16), 6),
        (("--depth-after-deletion", 2, *SECONDS), Level(after_deletion=2), (36, 360, 720, 3600), 3),
        (("--score", 0.8, "--scores-by-depth", "0.6,0.7,0.8,0.79"), Level(mean_depth=3), (1, 4, 9, 16), None),
        (
            ("--hours-a-day", 9, "--budget", 200, "--never-dead", *SECONDS),
            Level(after_deletion=1, hours_a_day=9, trainings=200),
            (36, 360, 720, 3600),
            3,
        ),
    ],
)
def test_the_document_is_that_of_the_library(asked, level, costs, hours):
    found = plan(*SMALL, *asked)
    lines = found.pop("recipe")
    assert found.pop("layers_per_slice") == 3
    assert found == expected(level, costs, hours)
    assert lines[0] == "partition: {shards: 3, slices: 4}"
    assert yaml.safe_load(lines[2])["deletion"]["repair"]["depth"] == found["proposal"]["depth"]


def test_people_read_recipe_lines_and_what_else_serves_as_much(tmp_path):
    path = tmp_path / "frontier.svg"
    shown = invoke("plan", *SMALL, *LEVEL, *SECONDS, "--plot", path)
    assert shown.exit_code == 0, shown.stderr
    assert "120 deletions in 6 months" in shown.stdout
    assert "  deletion: {repair: {policy: as-needed, depth: 3, spares: 1, spare_depth: 1}}\n" in shown.stdout
    words = " ".join(shown.stdout.split())
    assert "a main chain of 3 slices and a spare of 1" in words
    assert "SISA" in words
    assert "bound" in words
    assert "simulating fixed orders" in shown.stderr
    assert_is_picture(path)
    drawn = {text.strip() for text in texts(path)}
    assert {"as needed", "SISA, as needed", "bound of any policy", "fixed, 4 orders", "proposed"} <= drawn
    assert "hours of repairs a day" in drawn


def test_the_lines_pass_init_and_shards_come_from_the_recipe(tmp_path):
    model = tiny.make_text_model(tmp_path / "model", layers=4)
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(tiny.recipe(model, partition={"shards": 2, "slices": 4})))
    found = plan("--recipe", path, "--deletions-per-month", 20, *LEVEL)
    assert (found["shards"], found["slices"]) == (2, 4)
    recipe = yaml.safe_load(path.read_text())
    recipe.pop("sequences", None)
    path.write_text(yaml.safe_dump(recipe | yaml.safe_load("\n".join(found["recipe"]))))
    tiny.text_table(40).to_csv(tmp_path / "records.csv", index=False)
    status = document("init", tmp_path / "run", "--data", tmp_path / "records.csv", "--recipe", path)
    assert len(status["shards"]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mean-depth", 5), "mean depth 5: a shard has 4 slices; ask for at most 4"),
        (("--depth-after-deletion", 3), "keep 2 after any one deletion; ask for at most that, or take 6 slices"),
        (("--depth-after-deletion", -1, "--never-dead"), "depth -1 after a deletion"),
        (("--score", 0.8), "--score and --scores-by-depth belong together"),
        (
            ("--score", 0.9, "--scores-by-depth", "0.6,0.7,0.8,0.79"),
            "the best is 0.8, with 3 slices; ask for at most that",
        ),
        (
            ("--score", 0.5, "--scores-by-depth", "0.6,0.7"),
            "--scores-by-depth: has 2 numbers for 4 slices; give one a depth",
        ),
        (("--score", "nan", "--scores-by-depth", "0.6,0.7,0.8,0.79"), "a score is not finite"),
        (("--hours-a-day", 1), "hours a day: how long stages take is not known"),
        (("--hours-a-day", 0.01, "--training-hours", 24), "0.01 hours of repairs a day are too few; allow "),
        (("--budget", 0.5), "0.5 full trainings are too few; allow "),
        (("--slices", 13), "13 slices: the model's layers have room for 1 to 12"),
        (("--shards", 0), "0 shards: give 1 to 100,000"),
        (("--stage-seconds", "1,2"), "has 2 numbers for 4 slices"),
        (("--plot", "frontier.txt"), "has the suffix '.txt'"),
        (("--share", 0.2), "--share is of fixed orders"),
        (("--max-shards", 5), "--max-shards is of fixed orders"),
        (("--stage-megabytes", 5), "--stage-megabytes is of fixed orders"),
        ((*SECONDS, "--training-hours", 2), "--stage-seconds and --training-hours both say"),
    ],
)
def test_wrong_input_is_one_clear_error(arguments, said):
    (problem,) = wrong(*SMALL, *LEVEL, *arguments)
    assert said in problem


def test_what_is_missing_is_said():
    (problem,) = wrong("--deletions-per-month", 20, *LEVEL)
    assert "give --shards and --slices" in problem
    (problem,) = wrong("--deletions-per-month", 20)
    assert problem.startswith("give --budget, or a level: --mean-depth")
    found = wrong("--deletions-per-month", 20, "--budget", 5, "--shards", 3, "--plot", "a.png")
    assert [problem.split()[0] for problem in found] == ["--shards", "--plot"]
