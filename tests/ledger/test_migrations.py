"""A ledger of a newer version, and a database of something else, are refused and left alone."""

from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text

from s3t.errors import RunFolderError
from s3t.ledger import Ledger, PostgresAddress, migrations
from s3t.ledger.engines import engine_at
from s3t.ledger.migrating import HEAD, revision


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
    assert ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head() == HEAD


def test_a_newer_ledger_is_refused_and_left_alone(ledger, address):
    with ledger.writing() as transaction:
        transaction.rows.connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = dump(address)
    with pytest.raises(RunFolderError, match=r"revision 9999, which a newer s3t wrote.*install the newer version"):
        Ledger.open(address)
    assert dump(address) == before


def test_a_database_of_something_else_is_refused_and_left_alone(address):
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
