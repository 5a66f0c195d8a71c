"""A ledger of another version, and a database of something else, are refused and left alone."""

import pytest
from sqlalchemy import inspect, text

from s3t.errors import RunFolderError
from s3t.ledger import Ledger, PostgresAddress
from s3t.ledger.engines import engine_at


def dump(address):
    """Every table of a database: its columns and its rows."""
    engine = engine_at(address)
    found = {}
    with engine.connect() as connection:
        for table in inspect(connection).get_table_names():
            columns = [column["name"] for column in inspect(connection).get_columns(table)]
            rows = connection.execute(text(f"SELECT {', '.join(columns)} FROM {table}"))
            found[table] = columns, sorted(repr(tuple(row)) for row in rows)
    engine.dispose()
    return found


@pytest.mark.parametrize(
    ("change", "told"),
    [("DROP TABLE durations", "durations"), ("CREATE TABLE alembic_version (x INTEGER)", "alembic_version")],
)
def test_a_ledger_of_another_version_is_refused_and_left_alone(ledger, address, change, told):
    with ledger.writing() as transaction:
        transaction.rows.connection.execute(text(change))
    before = dump(address)
    with pytest.raises(
        RunFolderError, match=rf"another version of s3t wrote the ledger \(.*{told}\): install that version"
    ):
        Ledger.open(address)
    assert dump(address) == before


def test_a_database_of_something_else_is_refused_and_left_alone(address):
    if not isinstance(address, PostgresAddress):
        address.touch()
    engine = engine_at(address)
    with engine.connect().execution_options(s3t_writing=True, s3t_alone=True) as connection, connection.begin():
        if isinstance(address, PostgresAddress):
            connection.execute(text(f'CREATE SCHEMA "{address.schema}"'))
        connection.execute(text("CREATE TABLE others (x INTEGER)"))
    engine.dispose()
    before = dump(address)
    with pytest.raises(RunFolderError, match="no ledger of s3t"):
        Ledger.open(address)
    assert dump(address) == before
