"""`s3t plan` as somebody types it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from s3t.cli.plan import _silence
from s3t.planning.plan import Demand, plan
from s3t.planning.rounding import rounded
from testing import tiny
from tests.cli.typed import document, invoke

ROOT = Path(__file__).resolve().parents[2]

SMALL = ("--max-shards", "4", "--max-slices", "4", "--max-sequences", "3")
ASKED = ("--deletions-per-month", "5", "--months", "6", "--share", "0.15", "--budget", "12", *SMALL)


def test_the_document_is_that_of_the_library():
    found = document("plan", *ASKED)
    demand = Demand(deletions_per_month=5, months=6, share=0.15, budget=12, max_shards=4, max_slices=4, max_sequences=3)
    lines = found.pop("recipe")
    assert found == json.loads(json.dumps(rounded(plan(demand).to_json()))) | {"stage_megabytes": None}
    assert lines[2] == f"adapter: {{layers_per_slice: {found['layers_per_slice']}}}"
    assert found["proposal"]["cost"] <= 12


def test_it_prints_what_to_write_into_a_recipe():
    done = invoke("plan", *ASKED, "--stage-megabytes", "100")
    assert done.exit_code == 0
    assert "30 deletions of a record in 6 months" in done.stdout
    assert "31 full trainings" in done.stdout
    assert "partition: {shards: " in done.stdout
    assert "selector: " in done.stdout
    assert "GB" in done.stdout


def test_a_budget_that_nothing_fits_says_what_the_cheapest_costs():
    done = invoke("plan", *ASKED, "--budget", "0.5")
    assert done.exit_code == 0
    assert "no system stays within 0.5 full trainings; the cheapest costs" in done.stdout


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (("--deletions-per-month", "-1"), "deletions per month is -1.0"),
        (("--months", "nan"), "months is nan"),
        (("--share", "1.5"), "give at most 1"),
        (("--budget", "0"), "budget is 0.0"),
        (("--max-slices", "33"), "max slices is 33, not between 1 and 32"),
        (("--stage-megabytes", "0"), "0.0 megabytes a stage"),
        (("--seed", "-1"), "seed -1 is negative"),
        (("--layers", "0"), "layers is 0, not between 1 and 10,000"),
        (("--layers", "2", "--layers-per-slice", "3"), "layers per slice is 3, not between 1 and the model's 2"),
        (("--training-hours", "0"), "0.0 hours of training"),
        (("--persons-per-month", "2"), "give one of --deletions-per-month and --persons-per-month"),
    ],
)
def test_wrong_input_is_one_clear_problem_with_status_2(wrong, problem):
    done = invoke("plan", *ASKED, *wrong, "--json")
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert len(error["problems"]) == 1
    assert problem in error["problems"][0]


def proposed(*options):
    """What is said, and the lines for a recipe in it."""
    said = invoke("plan", *options).stdout
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
    status = document("init", tmp_path / "run", "--data", tmp_path / "records.csv", "--recipe", readme)
    assert len(status["shards"]) == recipe["partition"]["shards"]


def test_slices_are_no_more_than_the_models_layers_have_room_for():
    two = document("plan", *ASKED, "--layers", "4", "--layers-per-slice", "2")
    assert max(found["slices"] for found in (two["proposal"], two["cheapest"], *two["frontier"])) <= 2
    assert two["layers_per_slice"] == 2
    said = invoke("plan", *ASKED).stdout
    assert "assumed, for neither --layers nor --recipe is given: 12 layers" in said


def test_a_person_hits_one_slice_once_however_many_records():
    by_person = document("plan", "--persons-per-month", "5", *ASKED[2:])
    assert by_person == document("plan", *ASKED)
    assert (
        "30 deletions of a person's records in 6 months"
        in invoke("plan", "--persons-per-month", "5", *ASKED[2:]).stdout
    )


def test_it_says_that_a_shard_below_one_slice_is_silent_how_often_and_how_long():
    said, lines = proposed(*ASKED[:4], "--share", "0.01", *ASKED[6:], "--training-hours", "10")
    assert lines[3] == "deletion: {repair: {below-depth: 1}}"
    (line,) = [line for line in said.splitlines() if "does not answer" in line]
    found = document("plan", *ASKED[:4], "--share", "0.01", *ASKED[6:])["proposal"]
    assert found["silent_until_repaired"]
    assert f"expected {found['repairs']:.1f} times in 6 months" in line
    told, hours = map(float, re.search(r"time of ([\d.]+) full trainings \(([\d.]+) hours\)", line).groups())
    assert told == pytest.approx(found["repair_cost"] / found["repairs"], rel=0.05)
    assert hours == pytest.approx(10 * told, rel=0.1)
    demand = Demand(deletions_per_month=5, months=6, share=0.15, budget=12, max_shards=2, max_slices=2, max_sequences=1)
    deep = _silence(replace(plan(demand).cheapest, depth=2), demand, None)
    assert "or with nothing" in deep
    assert "does not answer" not in deep


def test_a_recipe_of_another_method_is_not_planned_for(readme):
    readme.write_text(readme.read_text().replace("sequences: {budget: 3}", "method: sisa"))
    error = document("plan", *ASKED, "--recipe", readme, status=2)["error"]
    assert "only s3t is planned for" in error["problems"][0]
