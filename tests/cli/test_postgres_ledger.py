"""Commands on a run whose ledger is in PostgreSQL; a password in S3T_LEDGER is never shown or written down."""

import json
import re

import pytest

from tests.cli.typed import document, invoke

PASSWORD = "geheim"


@pytest.fixture
def database(postgres, tmp_path, monkeypatch):
    """S3T_LEDGER names a new database, with a password in the URL."""
    name = f"s3t_{re.sub('[^a-z0-9]', '_', tmp_path.name.lower())}"
    url = postgres.create_database(name).replace("postgres@", f"postgres:{PASSWORD}@")
    assert PASSWORD in url
    monkeypatch.setenv("S3T_LEDGER", url)
    return url


def said(*arguments, status=0):
    """Both streams of a command, with and without --json; neither may show the password."""
    results = [invoke(*arguments, "--json"), invoke(*arguments)]
    assert [result.exit_code for result in results] == [status, status], results[0].stderr
    everything = "".join(result.stdout + result.stderr for result in results)
    assert PASSWORD not in everything
    return json.loads(results[0].stdout), " ".join(everything.split())


def test_no_command_on_a_run_with_its_ledger_in_postgresql_shows_its_password(made, tmp_path, postgres, database):
    run = tmp_path / "run"
    inputs = ("--data", made / "records.csv", "--recipe", made / "recipe.yaml")
    assert document("init", run, *inputs)["ledger"].startswith(f"PostgreSQL at {postgres.folder}, database")
    assert not (run / "ledger.sqlite").exists()
    assert said("train", run)[0]["trained"] == 18
    assert said("delete", run, "--record", "r3", "--key", "ticket 1")[0]["state"] == "erased"
    assert f"ledger: PostgreSQL at {postgres.folder}, database" in said("status", run)[1]
    for command in (("log",), ("erase",), ("repair",), ("predict", "--text", "w1"), ("audit",), ("reconcile",)):
        said(command[0], run, *command[1:])
    assert said("destroy-key", run, "--yes")[0] == {"destroyed": True}


@pytest.mark.parametrize(
    ("url", "status", "words"),
    [
        (f"postgresql://me:{PASSWORD}@localhost:1/runs", 1, "postgresql+psycopg://me@localhost:1/runs"),
        (f"postgresql://me@localhost:1/runs?password={PASSWORD}", 1, "See that the database answers"),
        (f"postgresql://me:{PASSWORD}", 2, "is not a database URL; write postgresql+psycopg://USER@HOST/DATABASE"),
        (f"mysql://me:{PASSWORD}@localhost/runs", 2, "'mysql' is not supported"),
    ],
    ids=["closed port", "password in the query", "no host", "another database"],
)
def test_a_database_that_does_not_answer_is_named_without_its_password(
    made, tmp_path, database, monkeypatch, url, status, words
):
    run = tmp_path / "run"
    inputs = ("--data", made / "records.csv", "--recipe", made / "recipe.yaml")
    document("init", run, *inputs)
    monkeypatch.setenv("S3T_LEDGER", url)
    assert words in said("status", run, status=status)[1]
    assert words in said("init", tmp_path / "another", *inputs, status=status)[1]
    assert not (tmp_path / "another").exists()
    assert [path.name for path in tmp_path.iterdir() if "another" in path.name] == []
