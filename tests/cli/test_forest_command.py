"""Status and extension of a run that is repaired as needed."""

import pytest

import s3t
from s3t.cli import display
from testing import tiny
from testing.roles import roles
from tests.cli.typed import document, invoke
from tests.run.worlds import trained_run


@pytest.fixture(scope="module")
def made(text_model, tmp_path_factory):
    """A folder with a trained run of two shards: a main chain of two slices and a spare of one, of three."""
    recipe = tiny.recipe(text_model, deletion={"repair": {"policy": "as-needed", "depth": 2}})
    del recipe["sequences"]
    folder = tmp_path_factory.mktemp("forest")
    trained_run(folder / "run", recipe, tiny.text_table()).close()
    return folder


def lines_of(run):
    return [line.replace("│", " ").split() for line in invoke("status", run).stdout.splitlines()]


@pytest.mark.integration
def test_the_status_draws_every_shards_chains_with_live_and_planned_depth(run):
    with s3t.Run.open(run) as opened, roles(opened).ledger.writing() as transaction:
        alive = opened.inventory().alive
        transaction.forget_stages({s: k for s, k in alive.items() if s.shard == 1 and 0 in s.prefix})
    lines = lines_of(run)
    assert [line[-6:] for line in lines if "main," in line] == [
        ["main,", "serves", "0", "1", "2", "2"],
        ["main,", "serves", "2", "[0]", "1", "2"],
    ]
    assert [line for line in lines if line[:1] == ["spare"]] == [["spare", "2", "1", "1"], ["spare", "[1]", "0", "1"]]
    said = invoke("status", run).stdout
    assert "2 stages are missing (about " in said
    assert "by this run's own times); train with" in said
    assert max(map(len, said.split("method s3t")[0].splitlines())) <= 80


def test_of_many_shards_the_first_are_drawn_and_the_others_counted(run, monkeypatch):
    monkeypatch.setattr(display, "MOST_SHARDS", 1)
    said = invoke("status", run).stdout
    assert said.count("main") == 1
    assert "and 1 shard more" in said


def test_hours_of_a_repair_are_told_in_hours_or_in_shorter_units(run):
    assert display.in_hours(0.42) == "about 0.4 hours, by this run's own times"
    assert display.in_hours(0.05) == "about 3 min, by this run's own times"
    assert document("status", run)["missing_hours"] == 0


def test_spares_are_added_and_trained(run):
    forecast = document("extend", run, "--spares", 2, "--dry-run")
    assert (forecast["stages"], forecast["lost_stages"]) == (2, 0)
    assert forecast["repair"] == {"policy": "as-needed", "level": None, "depth": 2, "spares": 2, "spare_depth": 1}
    assert document("status", run)["missing"] == 0
    extended = document("extend", run, "--spares", 2, "--spare-depth", 2)
    assert (extended["repair"]["spares"], extended["repair"]["spare_depth"], extended["trained"]) == (2, 2, 6)
    assert [len(shard["sequences"]) for shard in document("status", run)["shards"]] == [3, 3]
    said = invoke("extend", run, "--spares", 2).stdout
    assert "a main chain of 2 slices and 2 spares of 2 slices a shard now" in said
    assert "nothing to train" in said


@pytest.mark.integration
def test_a_policy_is_given_as_in_a_recipe_and_can_be_changed_back(run):
    switched = document("extend", run, "--policy", "eager")
    assert (switched["repair"], switched["trained"]) == ("eager", 2)
    assert [len(shard["sequences"]) for shard in document("status", run)["shards"]] == [1, 1]
    assert "sequences (live depth)" in invoke("status", run).stdout
    said = invoke("extend", run, "--policy", "{policy: as-needed, depth: 3, spare_depth: 2}").stdout
    assert "a main chain of 3 slices and 1 spare of 2 slices a shard now" in said


def test_what_an_extension_cannot_be_is_refused_with_status_2(run):
    for options, where, problem in (
        (("--spares", 0), "the spares", "0 is below the present 1"),
        (("--spare-depth", 3), "the spares", "spare_depth 3: give 1 to 2"),
        (("--budget", 4), "the budget", "give --spares or --spare-depth"),
        (("--budget", 4, "--spares", 2), "the extension", "a budget and spares"),
        ((), "the extension", "nothing asked for"),
        (("--policy", "{policy: as-needed"), "the policy", "is not YAML"),
        (("--policy", "often"), "the policy", "deletion.repair"),
    ):
        error = document("extend", run, *options, status=2)["error"]
        assert error["where"] == where
        assert problem in error["problems"][0]
