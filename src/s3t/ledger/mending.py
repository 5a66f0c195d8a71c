"""Rows in which one bit has flipped are put right: the check says which bit it was."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Table

from s3t.ledger.rows import CHECKED, Rows


@dataclass(frozen=True, kw_only=True)
class Mended:
    """What became of rows whose check failed."""

    rows: int
    """Put right."""
    left: tuple[str, ...]
    """Tables in which other rows are wrong still."""


def mend_rows(rows: Rows) -> Mended:
    """Put every row right in which a single bit is wrong.

    Raises:
        IntegrityError: a table cannot be read.
    """
    mended, left = 0, []
    for table in CHECKED:
        for row in rows.wrong(table, rows.unchecked(table)):
            right = _right(rows, table, row)
            if right is None:
                left.append(table.name)
                continue
            rows.remove(table, row)
            rows.upsert(table, [right])
            mended += 1
    return Mended(rows=mended, left=tuple(dict.fromkeys(left)))


def remove_wrong(rows: Rows, table: Table) -> None:
    """Remove a table's rows whose check fails."""
    for row in rows.wrong(table, rows.unchecked(table)):
        rows.remove(table, row)


def _right(rows: Rows, table: Table, row: Row[Any]) -> dict[str, Any] | None:
    """A row's values as they were before one bit flipped, in them or in the check; None if it is not that."""
    names = [column.name for column in table.c][:-1]
    values, mac = list(row)[:-1], row[-1]
    if isinstance(mac, bytes) and _bits_apart(mac, rows.mac(table, tuple(values))) == 1:
        return dict(zip(names, values, strict=True))
    for index, value in enumerate(values):
        for other in _one_bit_apart(value):
            tried = (*values[:index], other, *values[index + 1 :])
            if rows.mac(table, tried) == mac:
                return dict(zip(names, tried, strict=True))
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
