"""A ledger's tables are those of the schema; one of a newer version, or none, is refused and left alone."""

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from s3t.errors import RunFolderError
from s3t.ledger import Ledger, PostgresAddress
from s3t.ledger.engines import engine_at
from s3t.ledger.migrating import HEAD, revision
from s3t.ledger.schema import metadata


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


def test_a_new_ledger_is_what_the_schema_says(ledger, address):
    assert differences(address) == []
    with ledger.reading() as transaction:
        assert revision(transaction._connection) == HEAD


def differences(address):
    """Between a database and the tables of `schema.py`."""
    engine = engine_at(address)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        found = compare_metadata(context, metadata)
    engine.dispose()
    return found


def test_the_comparison_would_see_a_difference(ledger, address):
    with ledger.writing() as transaction:
        transaction._connection.execute(text("DROP INDEX deleted_by_generation"))
        transaction._connection.execute(text("ALTER TABLE slices ADD COLUMN label VARCHAR"))
    assert {found[0] for found in differences(address)} == {"remove_column", "add_index"}


def test_a_newer_ledger_is_refused_and_left_alone(ledger, address):
    with ledger.writing() as transaction:
        transaction._connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    before = dump(address)
    with pytest.raises(RunFolderError, match=r"revision 9999, which a newer s3t wrote.*install the newer version"):
        Ledger.open(address)
    assert dump(address) == before


def test_a_database_of_something_else_is_refused_and_left_alone(address):
    engine = engine_at(address)
    with engine.connect().execution_options(s3t_writing=True) as connection, connection.begin():
        if isinstance(address, PostgresAddress):
            connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
        connection.execute(text("CREATE TABLE records (x INTEGER)"))
    engine.dispose()
    before = dump(address)
    with pytest.raises(RunFolderError, match="no ledger of s3t"):
        Ledger.open(address)
    assert dump(address) == before
