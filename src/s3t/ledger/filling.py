"""Rows of a new ledger: generation 0, slices, records and copies outside the run."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.state import Copy, RecordRow, SliceState
from s3t.ledger.statements import chunks, now
from s3t.partition import Place, Secret


def write_first_rows(
    rows: Rows,
    slices: Mapping[Place, SliceState],
    records: Iterable[RecordRow],
    copies: Sequence[Copy],
) -> None:
    """Write generation 0, slices, records and copies."""
    time = now(rows.connection)
    times = dict.fromkeys(("received_at", "accepted_at", "effective_at", "erased_at"), time)
    rows.insert(schema.generations, [{"generation": 0, **times, "records": 0, "mark": secrets.token_hex(8)}])
    rows.insert(
        schema.slices,
        (
            {"shard": place.shard, "slice": place.slice, "records": state.records, "digest": state.digest}
            for place, state in slices.items()
        ),
    )
    # In the order of the index, which then grows at its end: time per record stays the same up to a million.
    for chunk in chunks(sorted(records, key=lambda record: record.token)):
        rows.insert(schema.records, map(record_values, chunk))
    values = ({"path": str(copy.path), "cache": str(copy.cache), "host": copy.host} for copy in copies)
    rows.insert(schema.copies, values)


def record_values(record: RecordRow) -> dict[str, Any]:
    """The row of a record."""
    return {
        "token": record.token,
        "subject": record.subject,
        "shard": record.place.shard,
        "slice": record.place.slice,
        "copies": record.copies,
    }


def record_rows(place: Place, copies: Mapping[tuple[str, str | None], int], secret: Secret) -> list[RecordRow]:
    """A slice's records, by tokens.

    Args:
        place: the slice.
        copies: number of rows of each (record, subject).
        secret: the run's.
    """
    return [
        RecordRow(
            token=secret.token("ledger", "record", record),
            subject=None if subject is None else secret.token("ledger", "subject", subject),
            place=place,
            copies=count,
        )
        for (record, subject), count in copies.items()
    ]


def record_of(row: Any) -> RecordRow:
    """The record of a row."""
    return RecordRow(token=row.token, subject=row.subject, place=Place(row.shard, row.slice), copies=row.copies)


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy a ledger's rows into new tables, except sessions and claims: they belong to the other run."""
    for table in schema.metadata.sorted_tables:
        target.execute(delete(table))
        if table.name in (schema.sessions.name, schema.claims.name):
            continue
        for rows in source.execute(select(table)).mappings().partitions(_ROWS):
            target.execute(insert(table), [dict(row) for row in rows])


_ROWS = 500
