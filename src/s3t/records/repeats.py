"""Finder of values that several rows share; it compares hashes, so values may be long."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


def short_digest(content: bytes) -> bytes:
    """A hash of 64 bits, for counts that decide nothing: among 10 million, two share one in 3 of a million tables."""
    return blake2b(content, digest_size=8).digest()


def count_distinct(digests: bytes | bytearray) -> int:
    """Number of different ones among the digests of `short_digest`, one after the other.

    >>> count_distinct(b"".join(map(short_digest, [b"a", b"b", b"a"])))
    2
    """
    ordered = np.sort(np.frombuffer(digests, dtype=np.uint64))
    return min(len(ordered), 1) + int((ordered[1:] != ordered[:-1]).sum())


class Names:
    """The name of every row, as a hash of 128 bits: two names share none.

    >>> names = Names()
    >>> names.add(["a", None, "b"])
    >>> names.add(["a", None, "a"])
    >>> [rows.tolist() for rows in names.repeated()]
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

    def repeated(self) -> tuple[Rows, Rows]:
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
