"""Held requests from the command line: listed with their reasons, approved, refused."""

import pytest

import s3t
from s3t.deletion.holding import Limits
from s3t.run.parts import LazyWorkshop
from testing import tiny
from tests.cli.typed import document, invoke, problems


@pytest.fixture
def run(made, tmp_path):
    return tiny.copy_run(made / "run", tmp_path / "run")


@pytest.fixture
def held(run):
    return [hold(run, [name]) for name in tiny.text_table().id[:2]]


def hold(run, records):
    """The id of a request that waits."""
    with s3t.Run.open(run) as opened:
        asked = {"subjects": [], "key": None, "strict": False, "caller": "app"}
        return opened.approvals.admit(records=records, limits=Limits(records=0, share=None), **asked).id


def test_held_requests_are_listed_approved_and_refused(run, held):
    listed = invoke("deletions", "held", run).stdout
    assert all(id in listed for id in held)
    assert listed.count("held because: 1 record: over 0") == 2
    assert "approved by the command line: deletion 1" in invoke("deletions", "approve", run, held[0]).stdout
    refused = invoke("deletions", "refuse", run, held[1], "--reason", "a mistake").stdout
    assert "refused by the command line: a mistake" in refused
    assert invoke("deletions", "held", run, "--waiting").stdout == "no request is held\n"
    with s3t.Run.open(run) as opened:
        assert [entry.records for entry in opened.log()] == [0, 1]


def test_documents(run, held):
    waiting = document("deletions", "held", run, "--waiting")["held"]
    assert {one["id"] for one in waiting} == {*held}
    done = document("deletions", "approve", run, held[0])
    assert (done["state"], done["deletion"], done["asked_by"]) == ("done", 1, "app")
    assert document("deletions", "refuse", run, held[1], "--reason", "no")["reason"] == "no"


@pytest.mark.parametrize(("policy", "outage"), [("manual", True), ("on-exhaustion", False)])
def test_an_approval_after_which_nothing_answers_says_so_and_repairs_as_the_recipe_says(run, policy, outage):
    tiny.change_recipe(run, deletion={"repair": policy})
    told = invoke("deletions", "approve", run, hold(run, list(tiny.text_table().id[:-1]))).stdout
    for words in ("approved by the command line: deletion 1", "23 records deleted", "warning: NO SHARD ANSWERS"):
        assert words in told
    with s3t.Run.open(run) as opened:
        found = opened.status()
    assert (found.records, bool(found.outage), "repaired in" in told) == (1, outage, not outage)


def test_the_repair_after_an_approval_is_in_its_document_and_a_failed_one_its_status(run, monkeypatch):
    tiny.change_recipe(run, deletion={"repair": "eager"})
    first, second = (hold(run, [name]) for name in tiny.text_table().id[:2])
    assert document("deletions", "approve", run, first)["outcome"]["repair"]["missing"] == 0
    monkeypatch.setattr(LazyWorkshop, "train", diverge)
    failed = document("deletions", "approve", run, second, status=1)
    assert (failed["state"], failed["outcome"]["deleted"]) == ("done", 1)
    assert failed["outcome"]["repair_failed"].startswith("diverged")


def diverge(*_, **__):
    raise s3t.TrainingError("diverged")


def test_an_unknown_id_is_wrong_input(run):
    assert "none was held" in problems("deletions", "approve", run, "nix")[0]
