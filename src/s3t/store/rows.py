"""Rows of tables: their values, the canonical bytes of which digests and content ids are made, and repeated ones."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_ROWS = 2**14
"""Rows of which the values are Python's objects at a time: they take ten times the memory that arrow's take."""

Value: TypeAlias = "str | bytes | float | Sequence[str] | None"


NO_DATE: Any = object()
"""In place of a date beyond the years 1 to 9999, which Python cannot hold."""


class Cells:
    """The values of a column, a window at a time, to go through any number of times."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, len(self._column), WINDOW_ROWS):
            window = self._column.slice(start, WINDOW_ROWS)
            try:
                values = window.to_pylist()
            except (OverflowError, ValueError):
                values = [_held(cell) for cell in window]
            yield from values


def _held(cell: pa.Scalar) -> Any:
    try:
        return cell.as_py()
    except (OverflowError, ValueError):
        return NO_DATE


def canonical_bytes(values: Iterable[Value]) -> bytes:
    """Each value as a tag, its length and its bytes, so that no value runs into the next; of a list, its values'.

    No two rows share them.

    >>> canonical_bytes(["ab", "c"]) == canonical_bytes(["a", "bc"])
    False
    >>> canonical_bytes([["a"], ["b"]]) == canonical_bytes([["a", "b"], []])
    False
    """
    parts: list[bytes] = []
    for value in values:
        if value is None:
            parts.append(b"n")
            continue
        if isinstance(value, str):
            tag, content = b"s", value.encode()
        elif isinstance(value, bytes):
            tag, content = b"b", value
        elif isinstance(value, list | tuple):
            tag, content = b"l", canonical_bytes(value)
        else:
            tag, content = b"f", struct.pack(">d", value)
        parts += (tag, struct.pack(">Q", len(content)), content)
    return b"".join(parts)


def contents(rows: pa.Table, names: Iterable[str]) -> Iterator[bytes]:
    """The canonical bytes of some columns of each row."""
    return map(canonical_bytes, zip(*(Cells(rows[name]) for name in names), strict=True))


def short_digest(content: bytes) -> bytes:
    """A hash of 64 bits, for counts that decide nothing: among 10 million, two share one in 3 of a million tables."""
    return blake2b(content, digest_size=8).digest()


def count_distinct(digests: bytes | bytearray) -> int:
    """Number of different ones among the digests of `short_digest`, one after the other."""
    return len(np.unique(np.frombuffer(digests, dtype=np.uint64)))


class DuplicateFinder:
    """The name of every row, as a hash of 128 bits: two names share none.

    >>> finder = DuplicateFinder()
    >>> finder.add(["a", None, "b"])
    >>> finder.add(["a", None, "a"])
    >>> [rows.tolist() for rows in finder.repeated()]
    [[3, 5], [0, 0]]
    """

    def __init__(self) -> None:
        self._digests = bytearray()

    def add(self, names: Iterable[str | None]) -> None:
        """Take in the names of the next rows; None is no row's name but its own."""
        for name in names:
            if name is None:
                row = len(self._digests).to_bytes(8)
                self._digests += blake2b(row, digest_size=16, person=b"row").digest()
            else:
                self._digests += blake2b(name.encode(), digest_size=16).digest()

    def repeated(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The rows whose name an earlier one has, in their order; and for each the first row with it."""
        halves = np.frombuffer(self._digests, dtype=np.uint64).reshape(-1, 2)
        ordered = np.sort(halves[:, 0])
        if not (ordered[1:] == ordered[:-1]).any():  # so it is nearly always, and this takes the least memory
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        del ordered
        order = np.lexsort(halves.T)  # of equal ones, the earlier comes first
        new = np.concatenate([[True], (halves[order][1:] != halves[order][:-1]).any(axis=1)])
        first = order[np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))]
        rows, firsts = order[~new], first[~new]
        by_row = np.argsort(rows)
        return rows[by_row], firsts[by_row]
