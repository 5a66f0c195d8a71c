"""Damage to a ledger: read for an audit, and mended where the rows' checks tell what was there."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Table, exc, text

from s3t.errors import IntegrityError
from s3t.ledger import schema
from s3t.ledger.filling import record_of
from s3t.ledger.rows import CHECKED, Rows
from s3t.ledger.state import RecordRow
from s3t.ledger.statements import REMOVALS
from s3t.partition import Place

_MOST_PROBLEMS = 20


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Rows of a ledger that are as they were written, and the number of others by table."""

    generation: int
    """The newest generation."""
    wrong: Mapping[str, int]
    """Number of rows whose check fails, by table."""
    records: Mapping[Place, Mapping[bytes, RecordRow]]
    """Present records of each slice, by token."""
    erasing: Mapping[Place, Set[bytes]]
    """Deleted records that may still be in the slice's current version."""
    deleted: Set[bytes]
    """Tokens of deleted records, and of subjects without a record."""


def contents_of(rows: Rows) -> Contents:
    """Contents of a ledger, read within one transaction."""
    wrong: dict[str, int] = {}
    right = {table.name: _right_rows(rows, table, wrong) for table in schema.metadata.sorted_tables}
    records: dict[Place, dict[bytes, RecordRow]] = {}
    for row in right["records"]:
        record = record_of(row)
        records.setdefault(record.place, {})[record.token] = record
    erasing: dict[Place, set[bytes]] = {}
    for row in right["erasing_records"]:
        erasing.setdefault(Place(row.shard, row.slice), set()).add(row.token)
    return Contents(
        generation=max((int(row.generation) for row in right["generations"]), default=0),
        wrong=wrong,
        records=records,
        erasing=erasing,
        deleted={row.token for row in right["deleted"]},
    )


def _right_rows(rows: Rows, table: Table, wrong: dict[str, int]) -> list[Any]:
    """Rows of a table that are as they were written; the number of others goes into `wrong`."""
    try:
        every = rows.unchecked(table)
    except IntegrityError:
        wrong[table.name] = 1
        return []
    if damaged := rows.wrong(table, every):
        wrong[table.name] = len(damaged)
    return [row for row in every if row not in damaged] if damaged else every


def structure_problems(rows: Rows) -> list[str]:
    """Problems that the database itself finds in its pages and indexes, within one transaction."""
    connection = rows.connection
    return list(_in_postgres(connection) if connection.dialect.name == "postgresql" else _in_sqlite(connection))


def rebuild_indexes(rows: Rows) -> list[str]:
    """Make every index anew from its table; returns the problems that are left."""
    tables = [f"TABLE {table.name}" for table in schema.metadata.sorted_tables]
    try:
        for what in [""] if rows.connection.dialect.name == "sqlite" else tables:
            rows.connection.execute(text(f"REINDEX {what}"))
    except exc.IntegrityError as error:  # a table has a row twice
        return [str(error.orig)]
    return structure_problems(rows)


def _in_sqlite(connection: Connection) -> Iterator[str]:
    try:
        for line in connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST_PROBLEMS})").scalars():
            if line != "ok":
                yield str(line)
    except exc.DBAPIError as error:  # a page that it cannot read
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


@dataclass(frozen=True, kw_only=True)
class Mended:
    """Result of mending rows."""

    rows: int
    """Number of rows that were put right."""
    left: tuple[str, ...]
    """Tables in which other rows are still wrong."""


def mend_rows(rows: Rows) -> Mended:
    """Put every row right in which a single bit is wrong: its check says which.

    Other rows of records are removed; `Transaction.add_records` writes them anew.

    Raises:
        IntegrityError: a table cannot be read.
    """
    mended, left = 0, []
    for table in CHECKED:
        for row in rows.wrong(table, rows.unchecked(table)):
            right = _mended(rows, table, row)
            if right is not None or table is schema.records:
                rows.remove(table, row)
            if right is None:
                left.append(table.name)
            else:
                rows.upsert(table, [right])
                mended += 1
    if mended:
        rows.raise_note(REMOVALS)
        rows.note_change()
    return Mended(rows=mended, left=tuple(dict.fromkeys(left)))


def _mended(rows: Rows, table: Table, row: Row[Any]) -> dict[str, Any] | None:
    """A row's values before one bit flipped in them or in the check; None if no single bit explains it."""
    names = [column.name for column in table.c][:-1]
    values, mac = list(row)[:-1], row[-1]
    if isinstance(mac, bytes) and _bits_apart(mac, rows.mac(table, tuple(values))) == 1:
        return dict(zip(names, values, strict=True))
    for index, value in enumerate(values):
        for other in _one_bit_apart(value):
            candidate = (*values[:index], other, *values[index + 1 :])
            if rows.mac(table, candidate) == mac:
                return dict(zip(names, candidate, strict=True))
    return None


def _bits_apart(one: bytes, other: bytes) -> int:
    if len(one) != len(other):
        return -1
    return sum((a ^ b).bit_count() for a, b in zip(one, other, strict=True))


def _one_bit_apart(value: Any) -> Iterator[Any]:
    """Every value that differs in one bit."""
    if isinstance(value, bytes):
        yield from _flipped(value)
    elif isinstance(value, str):
        for content in _flipped(value.encode(errors="surrogateescape")):
            yield content.decode(errors="surrogateescape")
    elif isinstance(value, float):
        yield from (struct.unpack(">d", content)[0] for content in _flipped(struct.pack(">d", value)))
    elif isinstance(value, int):
        yield from (value ^ 1 << bit for bit in range(63))
        # SQLite keeps numbers in one to eight bytes, of which the first bit is the sign.
        yield from (value + sign * (1 << bit) for bit in (7, 15, 23, 31, 47, 63) for sign in (-1, 1))


def _flipped(content: bytes) -> Iterator[bytes]:
    for byte in range(len(content)):
        for bit in range(8):
            yield content[:byte] + bytes([content[byte] ^ 1 << bit]) + content[byte + 1 :]
