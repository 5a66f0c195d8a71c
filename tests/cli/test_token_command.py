"""Tokens from the command line: printed once, listed without the secret, revoked by name."""

import pytest

import s3t
from s3t_server.tokens import Access
from testing import tiny
from tests.cli.typed import document, invoke, problems


@pytest.fixture
def run(made, tmp_path):
    return tiny.copy_run(made / "run", tmp_path / "run")


def test_a_token_is_printed_alone_on_stdout(run):
    result = invoke("token", "create", run, "app", "--scope", "predict", "--scope", "audit", "--days", "30")
    assert result.exit_code == 0
    with s3t.Run.open(run) as opened:
        assert Access(opened).find(result.stdout.strip()).scopes == ("predict", "audit")
    assert "not shown again" in result.stderr
    listed = invoke("token", "list", run).stdout
    assert "predict audit" in listed
    assert result.stdout.strip() not in listed


def test_documents(run):
    made = document("token", "create", run, "app", "--scope", "delete", "--per-minute", "5")
    assert made["token"].startswith("s3t_")
    (listed,) = document("token", "list", run)["tokens"]
    assert listed == {name: value for name, value in made.items() if name != "token"}
    revoked = document("token", "revoke", run, "app")
    assert revoked["revoked_at"]
    assert document("token", "list", run)["tokens"] == [revoked]


def test_a_run_without_tokens_says_how_one_is_made(run):
    assert "s3t token create" in invoke("token", "list", run).stdout


def test_everything_that_is_wrong_is_told(run):
    found = problems("token", "create", run, "", "--scope", "predikt", "--days", "-1")
    assert len(found) == 3
    assert "no token" not in problems("token", "revoke", run, "nobody")[0]
    assert "nobody" in problems("token", "revoke", run, "nobody")[0]
