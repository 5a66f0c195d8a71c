"""Damage to a ledger: read for an audit, and what can be mended from tables and slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, exc, text

from s3t.core import Place
from s3t.errors import IntegrityError
from s3t.ledger import schema
from s3t.ledger.rows import CHECKED, Rows
from s3t.ledger.schema import place_at, value_of
from s3t.ledger.state import RecordRow

_MOST_PROBLEMS = 20


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Rows of a ledger that are as they were written, and the number of others by table."""

    generation: int
    wrong: Mapping[str, int]
    """Number of rows whose check fails, by table."""
    records: Mapping[Place, Mapping[bytes, RecordRow]]
    """Present records of each slice, by token."""
    erasing: Mapping[Place, Set[bytes]]
    """Deleted records that may still be in the slice's current version."""
    deleted: Mapping[bytes, int]
    """Generation that deleted each token of a record, or of a subject of whom none was left, last."""


def contents_of(rows: Rows) -> Contents:
    wrong: dict[str, int] = {}
    right: dict[str, list[Any]] = {}
    for table in schema.metadata.sorted_tables:
        try:
            every = rows.unchecked(table)
            damaged = rows.wrong(table, every)
        except IntegrityError:
            wrong[table.name], right[table.name] = 1, []
            continue
        right[table.name] = [row for row in every if row not in damaged] if damaged else every
        if damaged:
            wrong[table.name] = len(damaged)
    records: dict[Place, dict[bytes, RecordRow]] = {}
    for row in right["records"]:
        record = value_of(RecordRow, row)
        records.setdefault(record.place, {})[record.token] = record
    erasing: dict[Place, set[bytes]] = {}
    for row in right["erasing_records"]:
        erasing.setdefault(place_at(row), set()).add(row.token)
    return Contents(
        generation=max((int(row.generation) for row in right["generations"]), default=0),
        wrong=wrong,
        records=records,
        erasing=erasing,
        deleted={row.token: int(row.generation) for row in right["deleted"]},
    )


def structure_problems(rows: Rows) -> list[str]:
    """Problems that the database itself finds in its pages and indexes, within one transaction."""
    connection = rows.connection
    if connection.dialect.name == "postgresql":
        return list(_in_postgres(connection))
    try:
        lines = connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST_PROBLEMS})").scalars().all()
    except exc.DBAPIError as error:  # a page that it cannot read
        return [str(error.orig)]
    return [str(line) for line in lines if line != "ok"]


def rebuild_indexes(rows: Rows) -> list[str]:
    """Make every index anew from its table; returns the problems that are left."""
    tables = [f"TABLE {table.name}" for table in schema.metadata.sorted_tables]
    try:
        for what in [""] if rows.connection.dialect.name == "sqlite" else tables:
            rows.connection.execute(text(f"REINDEX {what}"))
    except exc.IntegrityError as error:  # a table has a row twice
        return [str(error.orig)]
    return structure_problems(rows)


_INDEXES = (
    "SELECT pg_class.oid FROM pg_class JOIN pg_am ON pg_am.oid = relam "
    "WHERE relkind = 'i' AND amname = 'btree' AND relnamespace = current_schema()::regnamespace"
)
_TABLES = "SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace"
_MAY_USE = (
    "SELECT quote_ident(nspname) FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace "
    "WHERE proname = :name AND has_function_privilege(pg_proc.oid, 'EXECUTE') LIMIT 1"
)


def _in_postgres(connection: Connection) -> Iterator[str]:
    """Problems that PostgreSQL's extension amcheck finds, if it is installed and the role may use it."""
    for name, relations, call in (
        ("bt_index_check", _INDEXES, "SELECT CAST(bt_index_check(CAST(:oid AS regclass), true) AS text)"),
        ("verify_heapam", _TABLES, "SELECT msg FROM verify_heapam(CAST(:oid AS regclass))"),
    ):
        place = connection.execute(text(_MAY_USE), {"name": name}).scalar_one_or_none()
        if place is None:
            continue
        query = text(call.replace(name, f"{place}.{name}"))
        for oid in connection.execute(text(relations)).scalars().all():
            try:
                with connection.begin_nested():  # an error would end the transaction
                    problems = connection.execute(query, {"oid": oid}).scalars().all()
            except exc.DBAPIError as error:
                yield str(error.orig)
            else:
                yield from (str(line) for line in problems if line)


def remove_wrong_rows(rows: Rows) -> list[str]:
    """Remove rows whose check fails, of records, for slices' files tell what they held, and of checkpoints, without
    which a stage is trained from its start. The other tables with wrong rows."""
    wrong = {table: rows.wrong(table, rows.unchecked(table)) for table in CHECKED}
    rows.remove(schema.records, [{"token": row.token} for row in wrong.pop(schema.records)])
    if wrong.pop(schema.checkpoints):
        rows.delete(schema.checkpoints)  # what they name in the store is swept
    return [table.name for table, found in wrong.items() if found]
