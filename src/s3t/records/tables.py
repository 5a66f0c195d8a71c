"""Tables of records: as Parquet files and from them, and some of their rows."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet

UNREADABLE = (OSError, pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError, struct.error)
"""Errors that a damaged Parquet file may raise: damage may look like invalid text, or like a column of terabytes."""


def table_in(file: BinaryIO | Path, columns: Sequence[str] | None = None) -> pa.Table:
    """The table in a Parquet file, or some of its columns; raises `UNREADABLE`."""
    return pa.parquet.ParquetFile(file).read(columns=columns)


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
    # take() copies what is kept; a filter by slicing would share, and write, the old buffers.
    return rows.take(pa.array(numbers, pa.int64())).combine_chunks()
