"""A SQLite ledger where nothing can be written: seen as it is, or refused."""

import shutil
import sqlite3

import pytest

from s3t.errors import StorageError
from s3t.ledger import Ledger
from s3t.ledger.engines import UnsteadyError, read_only_connection, steady
from tests.mounts import mounted_read_only


@pytest.fixture
def database(tmp_path):
    """One whose log was written back."""
    path = tmp_path / "held" / "ledger.sqlite"
    path.parent.mkdir()
    writer = sqlite3.connect(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("CREATE TABLE t (x)")
    writer.commit()
    writer.close()
    return path


def rows(path):
    reader = read_only_connection(path)
    try:
        return reader.execute("SELECT count(*) FROM t").fetchone()[0]
    finally:
        reader.close()


def test_what_a_writer_commits_is_seen_through_its_log(database, tmp_path):
    with mounted_read_only(database.parent, tmp_path / "mounted") as mounted:
        seen = mounted / database.name
        assert rows(seen) == 0
        writer = sqlite3.connect(database, isolation_level=None)
        writer.execute("INSERT INTO t VALUES (1)")
        assert rows(seen) == 1
        writer.execute("INSERT INTO t VALUES (2)")
        assert rows(seen) == 2
        shutil.copytree(database.parent, tmp_path / "killed")  # with its log, as a killed writer leaves it
        writer.close()
        assert rows(seen) == 2
    with mounted_read_only(tmp_path / "killed", tmp_path / "mounted") as mounted:
        assert rows(mounted / database.name) == 2


def test_a_log_without_its_index_is_refused_and_never_left_out(database, tmp_path):
    writer = sqlite3.connect(database, isolation_level=None)
    writer.execute("INSERT INTO t VALUES (1)")
    copy = tmp_path / "copy" / database.name
    copy.parent.mkdir()
    for suffix in ("", "-wal"):
        shutil.copy2(database.with_name(database.name + suffix), copy.with_name(copy.name + suffix))
    writer.close()
    with pytest.raises(StorageError, match=r"perhaps accepted deletions.*Open the run once where it can be written"):
        read_only_connection(copy)


def test_what_was_written_to_while_it_was_read_is_thrown_away(database):
    reader = read_only_connection(database)
    with pytest.raises(UnsteadyError), steady(database):  # noqa: PT012
        reader.execute("SELECT * FROM t").fetchall()
        writer = sqlite3.connect(database, isolation_level=None)
        writer.execute("INSERT INTO t VALUES (1)")
        writer.close()
    reader.close()
    assert rows(database) == 1


def test_a_network_file_system_is_refused(database, monkeypatch):
    monkeypatch.setattr("s3t.ledger.engines._file_system", lambda path: "nfs4")
    with pytest.raises(StorageError, match=r"network file system \(nfs4\).*PostgreSQL"):
        read_only_connection(database)


def test_nothing_is_written(database, monkeypatch):
    monkeypatch.setattr("s3t.ledger.ledger.is_read_only", lambda folder: True)
    with pytest.raises(StorageError, match=r"mounted read-only\. Mount it writable"), Ledger(database).writing():
        pass
