"""Division of a table into slices, which are gathered one at a time: all together they take as much as the table."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from s3t.partition import Place, Secret, place_of
from s3t.records.cells import Cells
from s3t.records.tables import rows_at

_SORTED_BYTES = 16
"""Bytes of a keyed hash that order the records of a slice. Two hashes that share them are not met."""


class Split(Mapping[Place, pa.Table]):
    """Every slice's rows, in the slice's order. They are gathered whenever they are asked for, and not kept.

    Args:
        rows: of all slices.
        numbers: for each slice, the numbers of its rows in the slice's order.
    """

    def __init__(self, rows: pa.Table, numbers: Mapping[Place, npt.NDArray[np.int64]]) -> None:
        self._empty, self._batches = rows.slice(0, 0), rows.to_batches()
        self._starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        self._numbers = numbers

    def __getitem__(self, place: Place) -> pa.Table:
        """The rows of a slice, in memory of their own."""
        numbers = self._numbers[place]
        ascending = np.sort(numbers)
        cuts = np.searchsorted(ascending, self._starts)
        # Batch by batch: of a column in several chunks, `take` copies the whole.
        parts = [
            batch.take(pa.array(ascending[first:end] - start))
            for batch, start, first, end in zip(self._batches, self._starts, cuts, cuts[1:], strict=False)
            if first < end
        ]
        gathered = pa.Table.from_batches(parts) if parts else self._empty
        return rows_at(gathered.combine_chunks(), np.searchsorted(ascending, numbers).tolist())

    def __iter__(self) -> Iterator[Place]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)


def split_into_slices(
    rows: pa.Table, *, secret: Secret, shards: int, slices: int, among: Sequence[Sequence[int]] | None = None
) -> Split:
    """Every slice's rows, ordered; slices without records are there, empty. Takes 50 bytes of memory a record.

    Args:
        rows: records.
        secret: decides the slice, and the order within it.
        shards: m.
        slices: L.
        among: for each row, the slices that its group is spread over; None where there are no groups.
    """
    places, tokens = array("I"), bytearray()
    spread = itertools.repeat(None, rows.num_rows) if among is None else among
    for record, subject, allowed in zip(Cells(rows["record"]), Cells(rows["subject"]), spread, strict=True):
        place = place_of(record, subject, secret=secret, shards=shards, slices=slices, among=allowed)
        places.append(place.shard * slices + place.slice)
        tokens += secret.token("order", "record", record)[:_SORTED_BYTES]
    # Rows with one id are identical (ids are unique, or hashes of the content), so ties do not matter.
    numbers = np.frombuffer(places, dtype=np.uintc)
    first, second = np.frombuffer(tokens, dtype=">u8").reshape(-1, 2).T.astype(np.uint64)
    order = np.lexsort((second, first, numbers))
    ends = np.cumsum(np.bincount(numbers, minlength=shards * slices))
    parts = np.split(order, ends[:-1])
    return Split(rows, {Place(*divmod(index, slices)): part for index, part in enumerate(parts)})
