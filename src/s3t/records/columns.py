"""A column of a table as read: its values, if it can hold what it should."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from s3t.records.cells import WINDOW_ROWS, Cells
from s3t.records.column_types import type_in_words
from s3t.records.problems import Problems
from s3t.records.reading import Table


def converted(values: Iterable[Any], kind: pa.DataType) -> pa.ChunkedArray:
    each = iter(values)
    chunks: list[pa.Array] = []
    while window := list(itertools.islice(each, WINDOW_ROWS)):
        made = pa.array(window, kind)
        chunks += made.chunks if isinstance(made, pa.ChunkedArray) else [made]  # texts of more than 2 GB
    return pa.chunked_array(chunks, kind)


def converted_or_same(values: Iterable[Any], kind: pa.DataType, rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A column of some values, or the table's own column if it has just these, so that they are in memory once."""
    column = converted(values, kind)
    if rows.column_names.count(name) == 1 and rows[name].type == kind and rows[name].equals(column):
        return rows[name]
    return column


def column_values(
    table: Table, name: str | None, fits: Callable[[pa.DataType], bool], expected: str, problems: Problems
) -> Cells | None:
    """A column's values; None if it is not there, or not there once, or its type does not fit, which is a problem.

    `expected` says in the message what the values have to be.
    """
    if name is None or table.rows.column_names.count(name) != 1:
        return None
    column = table.rows[name]
    if not fits(column.type):
        problems.add(f"column {name!r} holds {type_in_words(column.type)}; {expected}, so convert the column")
        return None
    return Cells(column)


def values_of(cell: Any, delimiter: str | None) -> list[Any] | None:
    """The values that a cell holds; None where it is missing, or text without a declared delimiter."""
    if isinstance(cell, str) and delimiter is not None:
        return [part.strip() for part in cell.split(delimiter)] if cell.strip() else []
    return cell if isinstance(cell, list) else None
