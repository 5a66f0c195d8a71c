"""Files of deletion requests."""

from __future__ import annotations

from collections.abc import Sequence

from s3t.errors import DataError, InputError
from s3t.records.reading import Data, read_data
from s3t.records.values import name_of

COLUMNS = ("record", "subject")


def requested(field: str, names: Sequence[str | int]) -> list[str]:
    """Names in a request as the records keep them (7.0 is 7), each once.

    Raises:
        InputError: a string, which would be taken letter by letter, or a name that is empty.
    """
    if isinstance(names, str | bytes):
        raise InputError(field, [f"is the string {names!r}, which would be taken letter by letter; pass [{names!r}]"])
    found = [name_of(name) for name in names]
    if None in found:
        raise InputError(field, ["holds an empty name; leave it out"])
    unreadable = [name for name in found if name is not None and not name.isprintable() and not _is_text(name)]
    if unreadable:
        raise InputError(field, [f"{name!r} is not UTF-8 text; correct it" for name in unreadable])
    return list(dict.fromkeys(name for name in found if name is not None))


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


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
