"""Columns of a table as read: their values, if they can hold what they should, and what is made of each cell."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from s3t.records.reading import Table
from s3t.records.requests import CellError
from s3t.records.rows import WINDOW_ROWS, Cells
from s3t.tasks import Kind

_TYPES: Mapping[str, Callable[[pa.DataType], bool]] = {
    "nothing": pa.types.is_null,
    "text": lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
    "floating-point numbers": pa.types.is_floating,
    "decimal numbers": pa.types.is_decimal,
    "whole numbers": pa.types.is_integer,
    "true and false": pa.types.is_boolean,
    "dates or times": pa.types.is_temporal,
    "bytes": lambda kind: (
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    ),
    "lists": lambda kind: pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind),
    "mappings": pa.types.is_nested,
}
_NAMES = frozenset({"nothing", "text", "whole numbers"})
_CATEGORIES = _NAMES | {"true and false", "floating-point numbers"}  # these are declared, so 1.0 can only mean 1
_LISTS = frozenset({"nothing", "text", *(f"lists of {content}" for content in _CATEGORIES)})
_FITTING: Mapping[Kind, tuple[frozenset[str], str]] = {
    "name": (_NAMES, "an id or a subject is text or a whole number"),
    "category": (_CATEGORIES, "a label or a group is text, a number, true or false"),
    "categories": (_LISTS, "labels are lists, or text with a delimiter"),
    "number": (_NAMES | {"floating-point numbers", "decimal numbers"}, "a regression's label is a number"),
    "text": (frozenset({"nothing", "text"}), "a text is text"),
    "words": (_LISTS, "words are lists of text, or text with a delimiter"),
    "messages": (
        frozenset({"nothing", "text", "lists of mappings", "lists of nothing"}),
        "a chat is a list of messages, or such a list as JSON",
    ),
}
"""Contents of a column that fit its kind, and what they have to be, for messages. Images may be anything."""


def type_in_words(kind: pa.DataType) -> str:
    """Content of a column of that type, in words: a mapping's type would name its keys.

    >>> type_in_words(pa.float64()), type_in_words(pa.list_(pa.struct({"key": pa.string()})))
    ('floating-point numbers', 'lists of mappings')
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    words = next((words for words, fits in _TYPES.items() if fits(kind)), "values of another kind")
    return f"lists of {type_in_words(kind.value_type)}" if words == "lists" else words


def type_problem(kind: pa.DataType, wanted: Kind) -> str | None:
    """The reason why a column of that type cannot hold what it should; None if it can."""
    if wanted not in _FITTING:
        return None
    fitting, expected = _FITTING[wanted]
    content = type_in_words(kind)
    return None if content in fitting else f"holds {content}; {expected}, so convert the column"


def column_values(table: Table, name: str | None, kind: Kind) -> Cells | None:
    """A column's values; None if it is not there, or not there once, or its type does not fit, which is a problem."""
    if name is None or table.rows.column_names.count(name) != 1:
        return None
    column = table.rows[name]
    if (problem := type_problem(column.type, kind)) is not None:
        table.problems.add(f"column {name!r} {problem}")
        return None
    return Cells(column)


def parsed(
    table: Table, cells: Iterable[Any] | None, parse: Callable[[Any], Any], kind: pa.DataType, *, what: str
) -> pa.ChunkedArray:
    """The column of parsed cells. Where `parse` raises `CellError`, the problem is noted and the value is null."""

    def values() -> Iterator[Any]:
        for row, cell in enumerate(cells or ()):
            try:
                yield parse(cell)
            except CellError as error:
                table.problems.add_row(row, f"{what} {error}")
                yield None

    return converted(values(), kind)


def converted(values: Iterable[Any], kind: pa.DataType) -> pa.ChunkedArray:
    each = iter(values)
    chunks: list[pa.Array] = []
    while window := list(itertools.islice(each, WINDOW_ROWS)):
        made = pa.array(window, kind)
        chunks += made.chunks if isinstance(made, pa.ChunkedArray) else [made]  # texts of more than 2 GB
    return pa.chunked_array(chunks, kind)


def values_of(cell: Any, delimiter: str | None) -> list[Any] | None:
    """The values that a cell holds; None where it is missing, or text without a declared delimiter."""
    if isinstance(cell, str) and delimiter is not None:
        return [part.strip() for part in cell.split(delimiter)] if cell.strip() else []
    return cell if isinstance(cell, list) else None
