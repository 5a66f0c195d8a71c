"""What a new ledger holds: generation 0, the slices and the records of init, and what init knew of copies."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.state import Copy, RecordRow, SliceState
from s3t.ledger.statements import chunks, now
from s3t.partition import Place


def write_first_rows(
    rows: Rows,
    slices: Mapping[Place, SliceState],
    records: Iterable[RecordRow],
    copies: Sequence[Copy],
) -> None:
    """Write it, within the transaction that makes the tables."""
    time = now(rows.connection)
    times = dict.fromkeys(("received_at", "accepted_at", "effective_at", "erased_at"), time)
    rows.insert(schema.generations, [{"generation": 0, **times, "records": 0, "mark": secrets.token_hex(8)}])
    rows.insert(
        schema.slices,
        (
            {
                "shard": place.shard,
                "slice": place.slice,
                "records": state.records,
                "losses": state.losses,
                "digest": state.digest,
            }
            for place, state in slices.items()
        ),
    )
    # In the index's order: it then grows at its end, and a million records take no longer each than a thousand.
    for chunk in chunks(sorted(records, key=lambda record: record.token)):
        rows.insert(schema.records, map(record_values, chunk))
    found = ({"path": str(copy.path), "cache": str(copy.cache), "host": copy.host} for copy in copies)
    rows.insert(schema.copies, found)


def record_values(record: RecordRow) -> dict[str, Any]:
    """A record as the table has it."""
    return {
        "token": record.token,
        "subject": record.subject,
        "shard": record.place.shard,
        "slice": record.place.slice,
        "copies": record.copies,
    }


def record_of(row: Any) -> RecordRow:
    """A record of a row of the table."""
    return RecordRow(token=row.token, subject=row.subject, place=Place(row.shard, row.slice), copies=row.copies)


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy a ledger's rows into new tables, but for sessions and their claims: those have the other run open."""
    for table in schema.metadata.sorted_tables:
        target.execute(delete(table))
        if table.name in (schema.sessions.name, schema.claims.name):
            continue
        for rows in source.execute(select(table)).mappings().partitions(_ROWS):
            target.execute(insert(table), [dict(row) for row in rows])


_ROWS = 500
