"""A run whose ledger is in PostgreSQL does what one with SQLite does, byte for byte."""

import json
import shutil

import psycopg
import pytest
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine import make_url

import s3t
from s3t.deletion.holding import Limits
from s3t.run import creation
from s3t.store import disk
from s3t.store.disk import temporary_name
from s3t_server.tokens import Access
from testing import tiny
from tests.run.test_race_minute import assert_as_if_never_known, assert_nothing_tainted, race
from tests.run.worlds import make_worlds, trained_run


@pytest.fixture(scope="module")
def url(postgres):
    return postgres.create_database("runs")


@pytest.fixture
def recipe(text_model, url):
    return tiny.recipe(text_model, ledger=url)


def test_a_run_that_forgot_is_one_that_never_knew_with_either_ledger(recipe, text_model, tmp_path):
    """Runs have schemas of their own in one database."""
    gone = ["r3", "r10", "r23"]
    worlds = make_worlds(tmp_path, recipe, tiny.text_table(), [["r3"], ["r10", "r23"]])
    assert not list(tmp_path.glob("*/ledger.sqlite*"))
    worlds.assert_exact()
    table = tiny.text_table()
    with trained_run(tmp_path / "sqlite", tiny.recipe(text_model), table[~table.id.isin(gone)]) as run:
        assert tiny.artifacts(run.path) == tiny.artifacts(worlds.forgot.path)
    worlds.close()


def test_nothing_tainted_is_answered_or_stored(recipe, tmp_path):
    recipe["training"] |= {"epochs": 1, "batch_size": 16}
    table = tiny.text_table(240)
    seen, gone = race(tmp_path, recipe, table, seconds=6, deletions=20, processes=("predict", "repair"))
    assert_nothing_tainted(seen, deletions=20, seconds=6)
    assert_as_if_never_known(tmp_path, recipe, table, gone)


def test_its_password_is_written_nowhere(text_model, url, tmp_path, monkeypatch):
    with_password = url.replace("postgres@", "postgres:hush@")  # the server trusts whoever reaches its socket
    monkeypatch.setenv("S3T_LEDGER", with_password)
    with s3t.Run.create(tmp_path / "run", recipe=tiny.recipe(text_model), data=tiny.text_table()) as run:
        run.delete(records=["r3"])
    written = json.loads((tmp_path / "run" / "run.json").read_text())["ledger"]
    assert make_url(written) == make_url(url)
    assert not [name for name, content in tiny.all_files(tmp_path / "run").items() if b"hush" in content]
    monkeypatch.delenv("S3T_LEDGER")
    with s3t.Run.open(tmp_path / "run") as run:
        assert run.inventory().generation == 1


def test_what_a_killed_init_left_in_the_database_goes_with_the_next(recipe, url, tmp_path):
    """Killed when the ledger was made, and the folder did not have its name yet."""
    s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()).close()
    left = f"s3t_{json.loads((tmp_path / 'run' / 'run.json').read_text())['run']}"
    assert left in schemas(url)
    (tmp_path / "run").rename(tmp_path / f".run.init-{temporary_name(4194305)}")  # more than any process's number
    s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()).close()
    assert left not in schemas(url)
    assert [path.name for path in tmp_path.glob("*.init-*")] == []
    assert f"s3t_{json.loads((tmp_path / 'run' / 'run.json').read_text())['run']}" in schemas(url)


def test_a_connection_lost_when_the_ledger_was_made_leaves_none(recipe, url, tmp_path, monkeypatch):
    before, commit = schemas(url), PGDialect_psycopg.do_commit

    def and_lose_the_connection(dialect, connection):
        commit(dialect, connection)
        monkeypatch.undo()
        raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(PGDialect_psycopg, "do_commit", and_lose_the_connection)
    with pytest.raises(s3t.StorageError, match="is unknown whether"):
        s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table())
    assert schemas(url) == before
    assert list(tmp_path.iterdir()) == []


def test_an_init_whose_fsync_failed_leaves_no_ledger_that_no_run_has(recipe, url, tmp_path, monkeypatch):
    """The process may change no run any more; the ledger that it has just made has none."""
    before = schemas(url)
    monkeypatch.setattr(disk, "_failed_fsync", [])

    def refused(layout, home):
        raise disk.note_failed_fsync(str(layout.home))

    monkeypatch.setattr(creation, "write_home", refused)
    with pytest.raises(s3t.FsyncError):
        s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table())
    assert schemas(url) == before
    assert list(tmp_path.iterdir()) == []


def schemas(url):
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        return {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace").fetchall()}


def test_a_clone_has_a_schema_of_its_own_and_so_has_a_copy_that_is_adopted(recipe, tmp_path):
    run, clone, copy = tmp_path / "run", tmp_path / "clone", tmp_path / "copy"
    with s3t.Run.create(run, recipe=recipe, data=tiny.text_table()) as made:
        made.train()
        made.delete(records=["r1"])
        Access(made).create("app", scopes=["predict"])
        made.export(tmp_path / "exported", shard=0)
        limits = Limits(records=0, share=None)
        asked = {"subjects": [], "key": None, "strict": False, "caller": "app", "limits": limits}
        assert made.approvals.admit(records=["r6"], **asked).state == "held"
    shutil.copytree(run, copy)
    with s3t.Run.open(copy) as opened:
        assert opened.predict(["w1"]).generation == 1
        with pytest.raises(s3t.MovedError, match="is a copy of the run"):  # it has the run's own ledger
            opened.delete(records=["r2"])
    with s3t.Run.open(run) as opened:
        opened.delete(records=["r2"])
    with s3t.Run.clone(run, clone) as cloned, s3t.Run.adopt(copy) as adopted, s3t.Run.open(run) as opened:
        for other, count in ((cloned, 0), (adopted, 0), (opened, 1)):
            # callers, held requests and exports stay the run's
            found = Access(other).all(), other.approvals.all(), other.status().exports
            assert [len(each) for each in found] == [count] * 3
        for other, record in ((cloned, "r3"), (adopted, "r4"), (opened, "r5")):
            assert not any(found.present for found in other.locate(records=["r1", "r2"]))
            assert other.delete(records=[record]).state == "erased"
        asked = ["r3", "r4", "r5"]
        seen = [[found.present for found in other.locate(records=asked)] for other in (cloned, adopted, opened)]
        assert seen == [[False, True, True], [True, False, True], [True, True, False]]
        for other in (cloned, adopted, opened):
            other.repair()
            assert other.audit(replay=1).ok
    for folder, record in ((clone, "r3"), (copy, "r4"), (run, "r5")):
        gone = tiny.text_table().set_index("id").text[["r1", "r2", record]]
        for text in (text for text in gone if len(text.split()) > 2):
            assert not any(text.encode() in content for content in tiny.all_files(folder).values())
