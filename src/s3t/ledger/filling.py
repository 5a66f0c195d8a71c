"""What a new ledger holds: generation 0, the slices and the records of init, and what init knew of copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import Connection, insert

from s3t.ledger import schema
from s3t.ledger.state import Copy, RecordRow, SliceState
from s3t.ledger.statements import chunks, now
from s3t.partition import Place


def fill(
    connection: Connection,
    slices: Mapping[Place, SliceState],
    records: Iterable[RecordRow],
    copies: Sequence[Copy],
) -> None:
    """Write it, within the transaction that makes the tables."""
    time = now(connection)
    first = {"generation": 0, "accepted_at": time, "effective_at": time, "erased_at": time, "records": 0}
    connection.execute(insert(schema.generations), [first])
    rows = [
        {
            "shard": place.shard,
            "slice": place.slice,
            "records": state.records,
            "losses": state.losses,
            "digest": state.digest,
        }
        for place, state in slices.items()
    ]
    connection.execute(insert(schema.slices), rows)
    # In the index's order: it then grows at its end, and a million records take no longer each than a thousand.
    for chunk in chunks(sorted(records, key=lambda row: row.token)):
        connection.execute(
            insert(schema.records),
            [
                {
                    "token": row.token,
                    "subject": row.subject,
                    "shard": row.place.shard,
                    "slice": row.place.slice,
                    "copies": row.copies,
                }
                for row in chunk
            ],
        )
    if copies:
        found = [{"path": str(copy.path), "cache": str(copy.cache), "host": copy.host} for copy in copies]
        connection.execute(insert(schema.copies), found)
