"""An older ledger is brought up to date; a newer one, and a database of something else, are refused and left alone."""

from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from s3t.errors import RunFolderError, StorageError
from s3t.ledger import Ledger, PostgresAddress, migrations
from s3t.ledger.engines import engine_at
from s3t.ledger.migrating import HEAD, OLDER, revision
from tests.ledger.world import STAGES, make_ledger, open_ledger
from tests.mounts import mounted_read_only


def dump(address):
    """Every table of a database, whatever its revision: its columns and its rows."""
    engine = engine_at(address)
    found = {}
    with engine.connect() as connection:
        for table in inspect(connection).get_table_names():
            columns = [column["name"] for column in inspect(connection).get_columns(table)]
            rows = connection.execute(text(f"SELECT {', '.join(columns)} FROM {table}"))
            found[table] = columns, sorted(repr(tuple(row)) for row in rows)
    engine.dispose()
    return found


def test_a_new_ledger_has_the_newest_revision(ledger):
    with ledger.reading() as transaction:
        assert revision(transaction.rows.connection) == HEAD
    scripts = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert scripts.get_current_head() == HEAD
    assert {script.revision for script in scripts.walk_revisions()} == {HEAD} | OLDER


def of_the_first_version(ledger):
    """Make it what the first version wrote."""
    with ledger.writing() as transaction:
        for table in ("durations", "tokens", "repairs", "held", "held_names", "admitted", "depths"):
            transaction.rows.connection.execute(text(f"DROP TABLE {table}"))
        transaction.rows.connection.execute(text("ALTER TABLE sessions DROP COLUMN answers"))
        transaction.rows.connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))


def keys_of(address):
    """Columns, primary and foreign keys of every table."""
    engine = engine_at(address)
    with engine.connect() as connection:
        seen = inspect(connection)
        found = {
            table: (
                [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(table)],
                seen.get_pk_constraint(table)["constrained_columns"],
                [
                    {key: each[key] for key in ("constrained_columns", "options")}
                    for each in seen.get_foreign_keys(table)
                ],
            )
            for table in seen.get_table_names()
        }
    engine.dispose()
    return found


def test_an_older_ledger_gets_the_tables_of_a_new_one_and_keeps_its_rows(ledger, address):
    new, rows = keys_of(address), dump(address)
    of_the_first_version(ledger)
    for _ in range(2):
        opened = open_ledger(address)
        assert opened.snapshot().stages == STAGES
        with opened.reading() as transaction:
            assert revision(transaction.rows.connection) == HEAD
            assert transaction.history.durations() == {}
            assert transaction.tokens.all() == []
        opened.close()
    assert keys_of(address) == new
    kept = {name: rows[name] for name in ("durations", "depths")}
    assert {**dump(address), **kept} == rows  # a new ledger has none of the others either


def test_an_older_ledger_that_cannot_be_written_is_refused_with_the_remedy(tmp_path):
    (tmp_path / "held").mkdir()
    ledger = make_ledger(tmp_path / "held" / "ledger.sqlite")
    of_the_first_version(ledger)
    ledger.close()
    with (
        mounted_read_only(tmp_path / "held", tmp_path / "mounted") as mounted,
        pytest.raises(StorageError, match=r"older version.*read-only.*[Oo]pen the run once"),
    ):
        Ledger.open(mounted / "ledger.sqlite")


def test_a_newer_ledger_is_refused_and_left_alone(ledger, address):
    with ledger.writing() as transaction:
        transaction.rows.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = dump(address)
    with pytest.raises(RunFolderError, match=r"revision 9999, which a newer s3t wrote.*install the newer version"):
        Ledger.open(address)
    assert dump(address) == before


def test_a_database_of_something_else_is_refused_and_left_alone(address):
    if not isinstance(address, PostgresAddress):
        address.touch()
    engine = engine_at(address)
    with engine.connect().execution_options(s3t_writing=True, s3t_alone=True) as connection, connection.begin():
        if isinstance(address, PostgresAddress):
            connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
        connection.execute(text("CREATE TABLE records (x INTEGER)"))
    engine.dispose()
    before = dump(address)
    with pytest.raises(RunFolderError, match="no ledger of s3t"):
        Ledger.open(address)
    assert dump(address) == before
