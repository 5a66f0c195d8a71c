"""What an operator of servers types: `serve`, `token`, and `deletions` for held requests."""

import importlib.util

import pytest

import s3t
from s3t.deletion.holding import Limits
from s3t.run.parts import LazyWorkshop
from s3t_server.tokens import Access
from testing import tiny
from tests.cli.typed import document, invoke, problems


def test_wrong_options_are_told_at_once(made, tmp_path):
    run = made / "run"
    found = problems("serve", run, "--port", "70000", "--workers", "0", "--wait-ms", "-1")
    assert [problem.partition(":")[0] for problem in found] == ["port", "workers", "wait"]
    assert "there is no scope 'delet'" in problems("serve", run, "--open", "delet")[0]
    assert "two runs are called run" in problems("serve", run, run)[0]
    assert "no run" in problems("serve", tmp_path)[0]


def test_without_the_extra_it_says_what_to_install(made, monkeypatch):
    usual = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else usual(name))
    (problem,) = problems("serve", made / "run")
    assert problem.startswith("serve needs uvicorn; install with: pip install")


def test_a_token_is_printed_alone_on_stdout(run):
    result = invoke("token", "create", run, "app", "--scope", "predict", "--scope", "audit", "--days", "30")
    assert result.exit_code == 0
    with s3t.Run.open(run) as opened:
        assert Access(opened).find(result.stdout.strip()).scopes == ("predict", "audit")
    assert "not shown again" in result.stderr
    listed = invoke("token", "list", run).stdout
    assert "predict audit" in listed
    assert result.stdout.strip() not in listed


def test_documents_of_tokens(run):
    assert "s3t token create" in invoke("token", "list", run).stdout  # there is none
    made = document("token", "create", run, "app", "--scope", "delete", "--per-minute", "5")
    assert made["token"].startswith("s3t_")
    (listed,) = document("token", "list", run)["tokens"]
    assert listed == {name: value for name, value in made.items() if name != "token"}
    revoked = document("token", "revoke", run, "app")
    assert revoked["revoked_at"]
    assert document("token", "list", run)["tokens"] == [revoked]
    assert len(problems("token", "create", run, "", "--scope", "predikt", "--days", "-1")) == 3
    assert "nobody" in problems("token", "revoke", run, "nobody")[0]


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


def test_documents_of_held_requests(run, held):
    waiting = document("deletions", "held", run, "--waiting")["held"]
    assert {one["id"] for one in waiting} == {*held}
    done = document("deletions", "approve", run, held[0])
    assert (done["state"], done["deletion"], done["asked_by"]) == ("done", 1, "app")
    assert document("deletions", "refuse", run, held[1], "--reason", "no")["reason"] == "no"
    assert "none was held" in problems("deletions", "approve", run, "nix")[0]


def test_an_approval_after_which_nothing_answers_says_so(run):
    told = invoke("deletions", "approve", run, hold(run, list(tiny.text_table().id[:-1]))).stdout
    for words in ("approved by the command line: deletion 1", "23 records deleted", "warning: NO SHARD ANSWERS"):
        assert words in told
    assert "repaired in" not in told  # as the recipe says
    assert document("status", run)["records"] == 1


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
