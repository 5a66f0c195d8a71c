"""Rows of a new ledger: generation 0, slices, records and copies outside the run."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection, delete, insert, select

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.state import Copy, RecordRow, SliceState
from s3t.ledger.statements import chunks_of_any, now
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
    for chunk in chunks_of_any(records):
        rows.insert(schema.records, map(record_values, chunk))
    values = ({"path": str(copy.path), "cache": str(copy.cache), "host": copy.host} for copy in copies)
    rows.insert(schema.copies, values)


class CompactRecords:
    """Records of a new ledger, in 60 bytes of memory each, 90 with subjects; in the order of their tokens.

    So the table's index grows at its end, and time per record stays the same up to a million.
    """

    def __init__(self) -> None:
        self._tokens, self._subjects = bytearray(), bytearray()
        self._places: list[Place] = []
        self._place_of, self._copies = array("I"), array("I")

    def add(self, place: Place, rows: Iterable[RecordRow]) -> None:
        """Take in the records of a slice."""
        self._places.append(place)
        for row in rows:
            self._tokens += row.token
            if row.subject is not None:  # none, as long as no record has one
                self._subjects += bytes(len(self._tokens) - len(self._subjects) - 32) + row.subject
            self._place_of.append(len(self._places) - 1)
            self._copies.append(row.copies)

    def __iter__(self) -> Iterator[RecordRow]:
        beginnings = np.frombuffer(self._tokens, dtype=">u8")[::4]  # of two tokens with one beginning, any is first
        for index in map(int, np.argsort(beginnings.astype(np.uint64))):
            subject = bytes(self._subjects[32 * index : 32 * index + 32])
            yield RecordRow(
                token=bytes(self._tokens[32 * index : 32 * index + 32]),
                subject=subject if any(subject) else None,
                place=self._places[self._place_of[index]],
                copies=self._copies[index],
            )


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
