"""Files of deletion requests."""

from __future__ import annotations

from s3t.errors import DataError
from s3t.records.reading import Data, read_data
from s3t.records.values import name_of

COLUMNS = ("record", "subject")


def read_requests(data: Data) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Record ids and subjects from a table with a column `record`, a column `subject`, or both; empty cells are none.

    Raises:
        DataError: the file cannot be read, or has neither column.
    """
    table = read_data(data, text_columns=COLUMNS)
    if not any(name in table.rows.column_names for name in COLUMNS):
        present = ", ".join(map(repr, table.rows.column_names)) or "none"
        raise DataError(
            table.where, [f"needs a column 'record' or 'subject'; it has {present}: rename the one with the ids"]
        )
    found = []
    for name in COLUMNS:
        # A name may occur more than once: who asks for a deletion in either column means it.
        columns = [table.rows.column(at) for at, held in enumerate(table.rows.column_names) if held == name]
        values = [value for column in columns for value in column.to_pylist()]
        found.append(tuple(dict.fromkeys(text for value in values if (text := name_of(value)) is not None)))
    return found[0], found[1]
