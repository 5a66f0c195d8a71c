"""`s3t plan` as somebody types it."""

import json
import re
from pathlib import Path

import pytest
import yaml

from s3t.planning.plan import Demand, plan
from testing import tiny
from tests.cli.typed import document, invoke

ROOT = Path(__file__).resolve().parents[2]

SMALL = ("--max-shards", "4", "--max-slices", "4", "--max-sequences", "3")
ASKED = ("--deletions-per-month", "5", "--months", "6", "--share", "0.15", "--budget", "12", *SMALL)


def test_the_document_is_that_of_the_library():
    found = document("plan", *ASKED)
    demand = Demand(deletions_per_month=5, months=6, share=0.15, budget=12, max_shards=4, max_slices=4, max_sequences=3)
    assert found == json.loads(plan(demand).model_dump_json())
    assert found["proposal"]["cost"] <= 12


def test_it_prints_what_to_write_into_a_recipe():
    done = invoke("plan", *ASKED)
    assert done.exit_code == 0
    assert "30 deletions in 6 months" in done.stdout
    assert "31 full trainings" in done.stdout
    assert "partition: {shards: " in done.stdout
    assert "selector: " in done.stdout


def test_a_budget_that_nothing_fits_says_what_the_cheapest_costs():
    done = invoke("plan", *ASKED, "--budget", "0.5")
    assert done.exit_code == 0
    assert "no system stays within the limits; the cheapest costs" in done.stdout


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (("--deletions-per-month", "-1"), "--deletions-per-month -1.0: give a number greater than 0"),
        (("--months", "nan"), "--months nan: "),
        (("--share", "1.5"), "--share 1.5: give a number less than or equal to 1"),
        (("--budget", "0"), "--budget 0.0: give a number greater than 0"),
        (("--max-slices", "33"), "--max-slices 33: give a number less than or equal to 32"),
        (("--seed", "-1"), "--seed -1: give a number greater than or equal to 0"),
        (("--layers", "0"), "--layers 0: give a number greater than or equal to 1"),
        (("--layers", "2", "--layers-per-slice", "3"), "3 layers a slice: the model has 2"),
        (("--training-hours", "0"), "--training-hours 0.0: "),
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
    status = document("init", tmp_path / "run", "--data", tmp_path / "records.csv", "--recipe", readme)
    assert len(status["shards"]) == recipe["partition"]["shards"]


def test_slices_are_no_more_than_the_models_layers_have_room_for():
    two = document("plan", *ASKED, "--layers", "4", "--layers-per-slice", "2")
    assert max(found["slices"] for found in (two["proposal"], two["cheapest"], *two["frontier"])) <= 2
    assert two["recipe"]["adapter"] == {"layers_per_slice": 2}
    said = invoke("plan", *ASKED).stdout
    assert "assumed, for neither --layers nor --recipe is given: 12 layers" in said


def test_it_says_that_a_shard_below_one_slice_is_silent_how_often_and_how_long():
    options = (*ASKED[:4], "--share", "0.01", *ASKED[6:], "--training-hours", "10")
    said, lines = proposed(*options)
    assert lines[3] == "deletion: {repair: {below-depth: 1}}"
    (line,) = [line for line in said.splitlines() if "may not answer" in line]
    found = document("plan", *options)["proposal"]
    assert found["depth_after_deletion"] == 0
    assert f"expected {found['repairs']:.1f} times in 6 months" in line
    told = float(re.search(r"time of ([\d.]+) full trainings", line).group(1))
    assert told == pytest.approx(found["repair_cost"] / found["repairs"], rel=0.05)
    assert f"{found['hours_a_day']:.3g} hours a day in all" in line
    assert found["hours_a_day"] == pytest.approx(10 * found["repair_cost"] / 182.625)


def test_a_recipe_of_another_method_is_not_planned_for(readme):
    readme.write_text(readme.read_text().replace("sequences: {budget: 3}", "method: sisa"))
    error = document("plan", *ASKED, "--recipe", readme, status=2)["error"]
    assert "only s3t is planned for" in error["problems"][0]
