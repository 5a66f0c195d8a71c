"""Everything that a ledger holds, read for an audit: damage is told, not refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Table, text
from sqlalchemy.exc import DBAPIError

from s3t.errors import IntegrityError
from s3t.ledger import schema
from s3t.ledger.filling import record_of
from s3t.ledger.rows import Rows
from s3t.ledger.state import RecordRow
from s3t.partition import Place

_MOST_TOLD = 20


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The rows of a ledger that are as they were written, and which tables have others."""

    generation: int
    """The newest."""
    wrong: Mapping[str, int]
    """Rows whose check fails, by table."""
    records: Mapping[Place, Mapping[bytes, RecordRow]]
    """Present records of each slice, by token."""
    erasing: Mapping[Place, Set[bytes]]
    """Records that are deleted, and may still be in the slice's file."""
    deleted: Set[bytes]
    """Tokens of what was deleted: of records, and of subjects without a record."""


def contents_of(rows: Rows) -> Contents:
    """All rows, within one transaction."""
    wrong: dict[str, int] = {}
    found = {table.name: _right(rows, table, wrong) for table in schema.metadata.sorted_tables}
    records: dict[Place, dict[bytes, RecordRow]] = {}
    for row in found["records"]:
        record = record_of(row)
        records.setdefault(record.place, {})[record.token] = record
    erasing: dict[Place, set[bytes]] = {}
    for row in found["erasing_records"]:
        erasing.setdefault(Place(row.shard, row.slice), set()).add(row.token)
    generation = max((int(row.generation) for row in found["generations"]), default=0)
    return Contents(
        generation=generation,
        wrong=wrong,
        records=records,
        erasing=erasing,
        deleted={row.token for row in found["deleted"]},
    )


def _right(rows: Rows, table: Table, wrong: dict[str, int]) -> list[Any]:
    """The rows of a table that are as they were written; how many others it has goes to `wrong`."""
    try:
        found = rows.unchecked(table)
    except IntegrityError:
        wrong[table.name] = 1
        return []
    if damaged := rows.wrong(table, found):
        wrong[table.name] = len(damaged)
    return [row for row in found if row not in damaged] if damaged else found


def structure_problems(connection: Connection) -> list[str]:
    """What the database itself finds wrong with its pages and indexes, within one transaction."""
    return list(_of_postgres(connection) if connection.dialect.name == "postgresql" else _of_sqlite(connection))


def rebuild_indexes(connection: Connection) -> None:
    """Make every index anew from its table."""
    if connection.dialect.name == "sqlite":
        connection.execute(text("REINDEX"))
        return
    for table in schema.metadata.sorted_tables:
        connection.execute(text(f"REINDEX TABLE {table.name}"))


def _of_sqlite(connection: Connection) -> Iterator[str]:
    try:
        for line in connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST_TOLD})").scalars():
            if line != "ok":
                yield str(line)
    except DBAPIError as error:  # a page that it stumbles over
        yield str(error.orig)


_INDEXES = (
    "SELECT pg_class.oid FROM pg_class JOIN pg_am ON pg_am.oid = relam "
    "WHERE relkind = 'i' AND amname = 'btree' AND relnamespace = current_schema()::regnamespace"
)
_TABLES = "SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
_MAY_USE = (
    "SELECT quote_ident(nspname) FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace "
    "WHERE proname = :name AND has_function_privilege(pg_proc.oid, 'EXECUTE') LIMIT 1"
)


def _of_postgres(connection: Connection) -> Iterator[str]:
    """What PostgreSQL's extension amcheck finds, where it is installed and the role may use it."""
    for name, relations, call in (
        ("bt_index_check", _INDEXES, "SELECT CAST(bt_index_check(CAST(:oid AS regclass), true) AS text)"),
        ("verify_heapam", _TABLES, "SELECT msg FROM verify_heapam(CAST(:oid AS regclass))"),
    ):
        place = connection.execute(text(_MAY_USE), {"name": name}).scalar_one_or_none()
        if place is None:
            continue
        for oid in connection.execute(text(relations)).scalars().all():
            try:
                with connection.begin_nested():  # what it raises would end the transaction
                    query = text(call.replace(name, f"{place}.{name}"))
                    found = connection.execute(query, {"oid": oid}).scalars().all()
            except DBAPIError as error:
                yield str(error.orig)
            else:
                yield from (str(line) for line in found if line)
