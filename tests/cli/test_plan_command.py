"""`s3t plan` as somebody types it."""

import json

import pytest

from s3t.planning import Demand, plan
from tests.cli.typed import document, invoke

SMALL = ("--max-shards", "4", "--max-slices", "4", "--max-sequences", "3")
ASKED = ("--deletions-per-month", "5", "--months", "6", "--share", "0.15", "--budget", "12", *SMALL)


def test_the_document_is_that_of_the_library(tmp_path):
    picture = tmp_path / "plan.svg"
    found = document("plan", *ASKED, "--plot", picture)
    demand = Demand(deletions_per_month=5, months=6, share=0.15, budget=12, max_shards=4, max_slices=4, max_sequences=3)
    assert found == json.loads(json.dumps(plan(demand).to_json())) | {"stage_megabytes": None}
    assert found["proposal"]["cost"] <= 12
    assert "<svg" in picture.read_text()


def test_it_prints_what_to_write_into_a_recipe():
    done = invoke("plan", *ASKED, "--stage-megabytes", "100")
    assert done.exit_code == 0
    assert "30 deletions in 6 months" in done.stdout
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
        (("--plot", "plan.txt"), "has the suffix '.txt'"),
    ],
)
def test_wrong_input_is_one_clear_problem_with_status_2(wrong, problem):
    done = invoke("plan", *ASKED, *wrong, "--json")
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert len(error["problems"]) == 1
    assert problem in error["problems"][0]
