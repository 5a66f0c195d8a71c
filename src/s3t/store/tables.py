"""Tables of records: as Parquet files and from them, and some of their rows.

Arrays are made of their buffers, and rows are removed by slicing: `pyarrow.array` imports pandas, take() and filter()
import `pyarrow.compute`. Either takes about as long as the rest of a deletion.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet

UNREADABLE = (OSError, pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError, struct.error)
"""Errors that a damaged Parquet file may raise: damage may look like invalid text, or like a column of terabytes."""


def table_in(file: BinaryIO | Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The table in a Parquet file, or some of its columns; raises `UNREADABLE`."""
    # A thread of arrow's that lets go of a Python file while Python ends aborts the process; so none is started.
    return pa.parquet.ParquetFile(file, pre_buffer=False).read(columns=columns, use_threads=False)


def row_count_in(file: BinaryIO) -> int:
    """Number of rows in a Parquet file, from its footer alone; raises `UNREADABLE`."""
    return int(pa.parquet.read_metadata(file).num_rows)


def parquet(rows: pa.Table) -> bytes:
    """A plain Parquet file of a table: no compression, no dictionaries, no statistics."""
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(
        rows, sink, compression="none", use_dictionary=False, write_statistics=False, store_schema=False
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def rows_at(rows: pa.Table, numbers: Sequence[int]) -> pa.Table:
    """Copies of some rows, in the given order."""
    indices = pa.Array.from_buffers(pa.int64(), len(numbers), [None, pa.py_buffer(array("q", numbers))])
    return rows.take(indices).combine_chunks()


def rows_without(rows: pa.Table, removed: Sequence[int]) -> pa.Table:
    """The rows but for some, which are given in their order; their Parquet file has nothing of those.

    >>> rows_without(pa.table({"name": ["a", "b", "c", "d"]}), [1, 3])["name"].to_pylist()
    ['a', 'c']
    """
    starts, ends = [0, *(row + 1 for row in removed)], [*removed, rows.num_rows]
    kept = [rows.slice(start, end - start) for start, end in zip(starts, ends, strict=True) if end > start]
    return pa.concat_tables(kept).combine_chunks() if kept else rows.slice(0, 0)


def rows_with(rows: pa.Table, column: str, values: Collection[str]) -> pa.Table:
    """The rows whose value in a column of text is among some.

    >>> rows_with(pa.table({"name": ["a", "\u00e9", "b"]}), "name", ["\u00e9", "", "b"])["name"].to_pylist()
    ['\u00e9', 'b']
    """
    from pyarrow.compute import is_in

    texts = [value.encode() for value in values]
    ends = array("q", itertools.accumulate(map(len, texts), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
    wanted = pa.Array.from_buffers(pa.large_string(), len(texts), buffers)
    return rows.filter(is_in(rows[column].cast(pa.large_string()), wanted))
