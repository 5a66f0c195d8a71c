"""Held requests from the command line: listed with their reasons, approved, refused."""

import pytest

import s3t
from s3t.deletion.holding import Limits
from testing import tiny
from tests.cli.typed import document, invoke, problems


@pytest.fixture
def run(made, tmp_path):
    return tiny.copy_run(made / "run", tmp_path / "run")


@pytest.fixture
def held(run):
    with s3t.Run.open(run) as opened:
        limits = Limits(records=0, share=None)
        asked = {"subjects": [], "key": None, "strict": False, "caller": "app", "limits": limits}
        return [opened.approvals.admit(records=[name], **asked).id for name in tiny.text_table().id[:2]]


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


def test_an_unknown_id_is_wrong_input(run):
    assert "none was held" in problems("deletions", "approve", run, "nix")[0]
