"""Division of records into slices as they come; they wait on the disk until all are there. Which slice a record lies
in, and where in it, its own names decide (`core/places.py`): memory holds a window of records, then one slice."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from s3t.core import Place, Secret, place_of
from s3t.store.rows import Cells
from s3t.store.spill import Spill
from s3t.store.tables import rows_at

_SORTED_BYTES = 16
"""Bytes of a keyed hash that order the records of a slice. Two hashes that share them are not met."""
_ORDER = " order"
"""Column of those bytes, while the records wait; no column of records has this name."""


class Split(Mapping[Place, pa.Table]):
    """Every slice's rows, in the slice's order; slices without records are there, empty. A slice is gathered whenever
    it is asked for, and not kept."""

    def __init__(self, spill: Spill, *, secret: Secret, shards: int, slices: int) -> None:
        self._spill, self._secret, self._shards, self._slices = spill, secret, shards, slices
        self._schema: pa.Schema | None = None
        self.counts: dict[Place, int] = dict.fromkeys(self, 0)
        """Records in each slice."""

    def add(self, rows: pa.Table, among: Sequence[Sequence[int]] | None = None) -> None:
        """Take in some records, all with the same columns; `among` as in `Records`."""
        secret, shards, slices = self._secret, self._shards, self._slices
        numbers, order = array("I"), bytearray()
        spread = itertools.repeat(None, rows.num_rows) if among is None else among
        for record, subject, allowed in zip(Cells(rows["record"]), Cells(rows["subject"]), spread, strict=True):
            place = place_of(record, subject, secret=secret, shards=shards, slices=slices, among=allowed)
            numbers.append(place.shard * slices + place.slice)
            order += secret.token("order", "record", record)[:_SORTED_BYTES]
        column = pa.Array.from_buffers(pa.binary(_SORTED_BYTES), rows.num_rows, [None, pa.py_buffer(bytes(order))])
        rows = rows.append_column(_ORDER, column)
        self._schema = rows.schema
        if rows.num_rows == 0:
            return
        places = np.frombuffer(numbers, dtype=np.uintc)
        by_place = np.argsort(places, kind="stable")
        together = rows_at(rows, by_place.tolist())
        used, starts = np.unique(places[by_place], return_index=True)
        for number, start, end in zip(used.tolist(), starts.tolist(), [*starts.tolist()[1:], len(places)], strict=True):
            self.counts[Place(*divmod(number, self._slices))] += end - start
            for batch in together.slice(start, end - start).to_batches():  # several, if a column has more than 2 GB
                self._spill.add(number, batch.serialize().to_pybytes())

    def __getitem__(self, place: Place) -> pa.Table:
        """The rows of a slice, in memory of their own."""
        batches = [
            pa.ipc.read_record_batch(pa.py_buffer(chunk), self._schema)
            for chunk in self._spill.chunks(place.shard * self._slices + place.slice)
        ]
        waiting = pa.Table.from_batches(batches, self._schema).combine_chunks()
        rows = waiting.drop_columns([_ORDER])
        content = b"".join(Cells(waiting[_ORDER]))
        first, second = np.frombuffer(content, dtype=">u8").reshape(-1, 2).T.astype(np.uint64)
        # Rows with one id are identical (ids are unique, or hashes of the content), so ties do not matter.
        return rows_at(rows, np.lexsort((second, first)).tolist())

    def __iter__(self) -> Iterator[Place]:
        return itertools.starmap(Place, itertools.product(range(self._shards), range(self._slices)))

    def __len__(self) -> int:
        return self._shards * self._slices
