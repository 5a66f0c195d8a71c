"""Commands on a run whose ledger is in PostgreSQL; a password in S3T_LEDGER is never shown or written down."""

import json
import re
import shutil

import pandas as pd
import pytest
import yaml

from testing import tiny
from tests.cli.typed import document, in_slices, invoke

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


def test_a_run_with_its_ledger_in_postgresql_goes_through_its_whole_life(
    made, tmp_path, postgres, database, monkeypatch
):
    run = tmp_path / "run"
    inputs = ("--data", made / "records.csv", "--recipe", made / "recipe.yaml")
    assert document("init", run, *inputs)["ledger"].startswith(f"PostgreSQL at {postgres.folder}, database")
    assert not (run / "ledger.sqlite").exists()
    assert said("train", run)[0]["trained"] == 18
    gone, _ = said("delete", run, "--record", "r3", "--key", "ticket 1")
    assert (gone["deleted"], gone["state"]) == (1, "erased")
    assert said("locate", run, "--record", "r3")[0]["located"][0]["state"] == "erased"
    assert len(said("log", run)[0]["log"]) == 2
    assert f"ledger: PostgreSQL at {postgres.folder}, database" in said("status", run)[1]
    assert said("erase", run)[0]["unfinished"] == []
    assert said("repair", run)[0]["trained"] == 6
    assert said("predict", run, "--input", made / "records.csv")[0]["generation"] == 1
    assert said("audit", run)[0]["ok"]
    assert said("reconcile", run)[0]["records"] == 0
    written = tiny.all_files(run)
    assert not any(PASSWORD.encode() in content for content in written.values())
    assert json.loads(written["run.json"])["ledger"].startswith("postgresql+psycopg://postgres@/")
    monkeypatch.delenv("S3T_LEDGER")  # this server asks for no password
    assert document("status", run)["generation"] == 1
    assert said("destroy-key", run, "--yes")[0] == {"destroyed": True}


def test_a_run_folder_that_is_put_back_is_recognised_by_its_ledger(made, tmp_path, database, monkeypatch):
    run, backup = tmp_path / "run", tmp_path / "backup"
    document("init", run, "--data", made / "records.csv", "--recipe", made / "recipe.yaml")
    document("train", run)
    shutil.copytree(run, backup)
    document("delete", run, "--record", "r3")
    shutil.rmtree(run)
    backup.rename(run)
    monkeypatch.setenv("S3T_STATE", str(tmp_path / "another host"))
    error, told = said("status", run, status=1)
    assert error["error"]["kind"] == "RestoredError"
    assert f"s3t reconcile {run}" in told
    assert said("reconcile", run)[0]["slices"]
    assert said("status", run)[0]["records"] == 23
    assert not in_slices(run, pd.read_csv(made / "records.csv").text[3])
    assert said("audit", run)[0]["ok"]


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


def test_a_recipe_with_a_password_is_refused_and_the_password_is_not_repeated(made, tmp_path, database):
    recipe = yaml.safe_load((made / "recipe.yaml").read_text()) | {"ledger": database}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    inputs = ("--data", made / "records.csv", "--recipe", tmp_path / "recipe.yaml")
    error, told = said("init", tmp_path / "run", *inputs, status=2)
    assert "S3T_LEDGER" in error["error"]["problems"][0]
    assert "PGPASSWORD" in told
