"""Rows of a new ledger: generation 0, slices, records and copies outside the run."""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Iterator, Mapping

from sqlalchemy import Connection, insert, select

from s3t.core import Place, Secret
from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.schema import of_place, row_of
from s3t.ledger.state import RecordRow, SliceState
from s3t.store.spill import Spill


def write_first_rows(rows: Rows, slices: Mapping[Place, SliceState], records: Iterable[RecordRow]) -> None:
    times = dict.fromkeys(("received_at", "accepted_at", "effective_at", "erased_at"), rows.now())
    rows.insert(schema.generations, [{"generation": 0, **times, "records": 0, "mark": secrets.token_hex(8)}])
    write_slices(rows, slices, records)


def write_slices(rows: Rows, slices: Mapping[Place, SliceState], records: Iterable[RecordRow]) -> None:
    """Segments that are new, and their records."""
    rows.insert(
        schema.slices,
        (
            {**of_place(place), "records": state.records, "digest": state.digest, "after": state.after}
            for place, state in slices.items()
        ),
    )
    rows.insert(schema.records, map(row_of, records))


class WaitingRecords:
    """Records of a new ledger, which wait on the disk until all are there; in the order of their tokens.

    So the table's index grows at its end, and time per record stays the same up to a million. Memory holds the records
    whose tokens share their first byte, one 256th of all. The spill is empty at first.
    """

    def __init__(self, spill: Spill) -> None:
        self._spill = spill

    def add(self, place: Place, rows: Iterable[RecordRow]) -> None:
        parts: dict[int, bytearray] = {}
        for row in rows:
            content = _WAITING.pack(row.token, row.subject or b"", row.subject is not None, *place, row.copies)
            parts.setdefault(row.token[0], bytearray()).extend(content)
        for first, part in parts.items():
            self._spill.add(first, part)

    def __iter__(self) -> Iterator[RecordRow]:
        for first in range(256):
            content = b"".join(self._spill.chunks(first))
            for token, subject, has_subject, *place, copies in sorted(_WAITING.iter_unpack(content)):
                yield RecordRow(
                    token=token, subject=subject if has_subject else None, place=Place(*place), copies=copies
                )


_WAITING = struct.Struct("!32s32s?QQQQ")


def record_rows(place: Place, copies: Mapping[tuple[str, str | None], int], secret: Secret) -> list[RecordRow]:
    """A slice's records, by tokens."""
    return [
        RecordRow(
            token=secret.token("ledger", "record", record),
            subject=None if subject is None else secret.token("ledger", "subject", subject),
            place=place,
            copies=count,
        )
        for (record, subject), count in copies.items()
    ]


def copy_rows(source: Connection, target: Connection) -> None:
    """Copy a ledger's rows into new tables, except what is the other run's alone."""
    for table in schema.metadata.sorted_tables:
        if table not in schema.of_one_run:
            for rows in source.execute(select(table)).mappings().partitions(_ROWS):
                target.execute(insert(table), [dict(row) for row in rows])


_ROWS = 500
