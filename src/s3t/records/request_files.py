"""Requests in files: tables of the names of records and subjects."""

from __future__ import annotations

from s3t.errors import DataError
from s3t.records.column_types import may_be_names, type_in_words
from s3t.records.names import text_of
from s3t.records.reading import Data, columns_in_words, read_data
from s3t.tasks import Kind

COLUMNS = ("record", "subject")
_KINDS: dict[str, Kind] = {"record": "name", "subject": "name"}


def read_requests(data: Data) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Record ids and subjects of a table with a column `record`, a column `subject`, or both; empty cells are none."""
    table = read_data(data, columns=_KINDS)
    present = table.rows.column_names
    if not any(name in present for name in COLUMNS):
        raise DataError(
            table.where,
            f"needs a column 'record' or 'subject' ({columns_in_words(present, COLUMNS)}): rename the id column",
        )
    # A name may occur more than once: who asks for a deletion in either column means it.
    columns = {name: [table.rows.column(at) for at, held in enumerate(present) if held == name] for name in COLUMNS}
    problems = [
        f"column {name!r} holds {type_in_words(column.type)}; convert them to text or whole numbers"
        for name in COLUMNS
        for column in columns[name]
        if not may_be_names(column.type)
    ]
    if problems:
        raise DataError(table.where, problems)
    columns_read = []
    for name in COLUMNS:
        values = [value for column in columns[name] for value in column.to_pylist()]
        columns_read.append(tuple(dict.fromkeys(text for value in values if (text := text_of(value)) is not None)))
    if not any(columns_read):
        raise DataError(table.where, "holds no names; give at least one")
    return columns_read[0], columns_read[1]
