"""`s3t plan` as somebody types it: systems within a budget, and chains for a level of service."""

import json
import re
from functools import partial
from pathlib import Path

import pytest
import yaml

from s3t.planning.plan import Demand, plan
from testing import tiny
from tests.cli import typed

ROOT = Path(__file__).resolve().parents[2]

SMALL = ("--max-shards", 3, "--max-slices", 3, "--max-sequences", 2)
ASKED = ("--deletions-per-month", 5, "--months", 6, "--share", 0.15, "--budget", 12, *SMALL)
SERVICE = ("--shards", 3, "--slices", 4, "--deletions-per-month", 20, "--months", 6)
LEVEL = ("--mean-depth", 3, "--depth-after-deletion", 1)
SECONDS = ("--stage-seconds", "36,360,720,3600")
OF_SERVICE = {"shards": 3, "slices": 4, "deletions_per_month": 20, "months": 6}

invoke = partial(typed.invoke, "plan")
document = partial(typed.document, "plan")
problems = partial(typed.problems, "plan")


@pytest.mark.parametrize(
    ("options", "demand"),
    [
        (ASKED, {"deletions_per_month": 5, "months": 6, "share": 0.15, "budget": 12}
         | {"max_shards": 3, "max_slices": 3, "max_sequences": 2}),
        ((*SERVICE, "--depth-after-deletion", 2, *SECONDS),
         OF_SERVICE | {"depth_after_deletion": 2, "stage_seconds": (36, 360, 720, 3600)}),
        ((*SERVICE, "--mean-depth", 1, "--hours-a-day", 9, "--budget", 200, "--training-hours", 3),
         OF_SERVICE | {"mean_depth": 1, "hours_a_day": 9, "budget": 200, "training_hours": 3}),
    ],
    ids=["budget", "depth after a deletion", "mean depth"],
)  # fmt: skip
def test_the_document_is_that_of_the_library(options, demand):
    found = document(*options)
    assert found == json.loads(plan(Demand(**demand)).model_dump_json())
    if "shards" in demand:
        assert found["recipe"]["partition"] == {"shards": 3, "slices": 4}
        assert found["recipe"]["adapter"] == {"layers_per_slice": 3}
        assert found["recipe"]["deletion"]["repair"]["depth"] == found["proposal"]["depth"]


def test_people_read_what_a_system_costs_and_that_none_is_within_the_limits():
    said = invoke(*ASKED).stdout
    for words in ("30 deletions in 6 months", "31 full trainings", "partition: {shards: ", "selector: "):
        assert words in said
    assert "assumed, for neither --layers nor --recipe is given: 12 layers" in said
    assert "no system stays within the limits; the cheapest costs" in invoke(*ASKED, "--budget", 0.5).stdout


def test_people_read_recipe_lines_and_what_other_depths_cost():
    shown = invoke(*SERVICE, *LEVEL, *SECONDS).stdout
    assert "120 deletions in 6 months" in shown
    assert "  deletion: {repair: {policy: as-needed, depth: 3, spares: 1, spare_depth: 1}}\n" in shown
    words = " ".join(shown.split())
    assert "a main chain of 3 slices and a spare of 1" in words
    assert "repairs of any policy of the proposal's mean depth cost at least" in words
    assert "hours a day in all" in words
    assert "silence it for 0.00% of the time" in words
    assert "more than a day has" not in words
    assert [line.split()[6] for line in shown.splitlines() if line.startswith("│ 3")] == ["1", "2", "3", "4"]


def test_repairs_that_take_more_than_a_day_has_are_told_of():
    """People ask for 20 deletions an hour, and each costs the last stage's hour."""
    asked = ("--shards", 3, "--slices", 4, "--deletions-per-month", 14_400, "--months", 0.1, *LEVEL)
    hours = document(*asked, "--training-hours", 3)["proposal"]["hours_a_day"]
    assert hours > 24
    words = " ".join(invoke(*asked, "--training-hours", 3).stdout.split())
    assert f"Repair with {-(-hours // 24):.0f} processes at least" in words
    assert "method: ridge" in words
    assert document(*asked, *SECONDS)["proposal"] is None
    assert "one process that repairs does not keep pace" in " ".join(invoke(*asked, *SECONDS).stdout.split())


def test_beyond_the_limits_it_says_what_is_enough():
    asked = (*SERVICE, *LEVEL, "--training-hours", 24, "--hours-a-day", 0.01)
    found = document(*asked)
    assert found["proposal"] is None
    assert f"{found['cheapest']['hours_a_day']:.3g} hours of repairs a day. Raise the limits" in invoke(*asked).stdout


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ((*ASKED, "--deletions-per-month", -1), "--deletions-per-month -1.0: give a number greater than 0"),
        ((*ASKED, "--share", 1.5), "--share 1.5: give a number less than or equal to 1"),
        ((*ASKED, "--max-slices", 33), "--max-slices 33: give a number less than or equal to 32"),
        ((*ASKED, "--layers", 2, "--layers-per-slice", 3), "3 layers a slice: the model has 2"),
        ((*SERVICE, *LEVEL, "--depth-after-deletion", -1), "--depth-after-deletion -1: give a number greater than or"),
        ((*SERVICE, *LEVEL, "--slices", 13), "13 slices: the model's layers have room for 1 to 12"),
        ((*SERVICE, *LEVEL, "--stage-seconds", "1,2,3,0"), "--stage-seconds 0.0: give a number greater than or equal"),
        ((*SERVICE, *LEVEL, "--stage-seconds", "1,2,3,x"), "number 4 is 'x', not a number"),
        ((*SERVICE, *LEVEL, *SECONDS, "--training-hours", 2), "stage seconds and training hours both say"),
    ],
)
def test_wrong_input_is_one_clear_problem(wrong, problem):
    (told,) = problems(*wrong)
    assert problem in told


def proposed(*options):
    """What is said, and the lines for a recipe in it."""
    said = invoke(*options).stdout
    return said, [
        line[2:] for line in said.splitlines() if re.match(r"  (partition|sequences|adapter|deletion): ", line)
    ]


@pytest.fixture
def readme(tmp_path):
    """README's recipe, with a tiny model of as many layers as README's."""
    (text,) = re.findall(r"cat > recipe.yaml <<'EOF'\n(.*?)EOF", (ROOT / "README.md").read_text(), flags=re.S)
    model = tiny.make_text_model(tmp_path / "model", layers=6)
    path = tmp_path / "recipe.yaml"
    path.write_text(re.sub(r"(?m)^base_model: .*$", f"base_model: {model}", text) + "text: {max_length: 20}\n")
    return path


@pytest.mark.integration
@pytest.mark.parametrize("known", ["recipe", "layers"])
def test_what_is_proposed_fits_the_readmes_recipe_and_passes_init(readme, tmp_path, known):
    told = ("--recipe", readme) if known == "recipe" else ("--layers", "6")
    said, lines = proposed("--deletions-per-month", "20", "--budget", "100", *SMALL, *told)
    assert "6 layers" in said
    names = [line.partition(":")[0] for line in lines]
    assert names == ["partition", "sequences", "adapter", "deletion"]
    kept = [line for line in readme.read_text().splitlines() if line.partition(":")[0] not in names]
    readme.write_text("\n".join([*kept, *lines]) + "\n")
    recipe = yaml.safe_load(readme.read_text())
    assert recipe["partition"]["slices"] * recipe["adapter"]["layers_per_slice"] <= 6
    assert (recipe["adapter"].get("rank") == 16) == (known == "recipe")
    table = tiny.text_table(40).replace({"label": {"a": "card_arrival", "b": "lost_card", "c": "lost_card"}})
    table.assign(customer="c").to_csv(tmp_path / "records.csv", index=False)
    status = typed.document("init", tmp_path / "run", "--data", tmp_path / "records.csv", "--recipe", readme)
    assert len(status["shards"]) == recipe["partition"]["shards"]


def test_the_lines_for_a_level_pass_init_and_shards_come_from_the_recipe(tmp_path):
    recipe = tiny.recipe(tiny.make_text_model(tmp_path / "model", layers=4), partition={"shards": 2, "slices": 4})
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    found = document("--recipe", path, "--deletions-per-month", 20, *LEVEL)
    assert found["recipe"]["partition"] == {"shards": 2, "slices": 4}
    recipe.pop("sequences")
    path.write_text(yaml.safe_dump(recipe | found["recipe"]))
    tiny.text_table(40).to_csv(tmp_path / "records.csv", index=False)
    status = typed.document("init", tmp_path / "run", "--data", tmp_path / "records.csv", "--recipe", path)
    assert len(status["shards"]) == 2


def test_slices_are_no_more_than_the_models_layers_have_room_for():
    two = document(*ASKED, "--layers", 4, "--layers-per-slice", 2)
    assert max(found["slices"] for found in (two["proposal"], two["cheapest"], *two["frontier"])) <= 2
    assert two["recipe"]["adapter"] == {"layers_per_slice": 2}


def test_it_says_that_a_shard_below_one_slice_is_silent_how_often_and_how_long():
    options = (*ASKED[:4], "--share", "0.01", *ASKED[6:], "--training-hours", "10")
    said, lines = proposed(*options)
    assert lines[3] == "deletion: {repair: {below-depth: 1}}"
    (line,) = [line for line in said.splitlines() if "may not answer" in line]
    found = document(*options)["proposal"]
    assert found["depth_after_deletion"] == 0
    assert f"expected {found['repairs']:.1f} times in 6 months" in line
    told = float(re.search(r"time of ([\d.]+) full trainings", line).group(1))
    assert told == pytest.approx(found["repair_cost"] / found["repairs"], rel=0.05)
    assert f"{found['hours_a_day']:.3g} hours a day in all" in line
    assert found["hours_a_day"] == pytest.approx(10 * found["repair_cost"] / 182.625)


def test_a_recipe_of_another_method_is_not_planned_for(readme):
    readme.write_text(readme.read_text().replace("sequences: {budget: 3}", "method: sisa"))
    assert "only s3t is planned for" in problems(*ASKED, "--recipe", readme)[0]
