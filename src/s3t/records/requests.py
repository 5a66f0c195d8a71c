"""Requests: the names of records and subjects, as text that the run can look up."""

from __future__ import annotations

from collections.abc import Sequence

from s3t.errors import DataError, InputError
from s3t.records.names import may_be_names, normal_form, space_problem, text_of, type_in_words
from s3t.records.reading import Data, columns_in_words, read_data
from s3t.tasks import Kind

COLUMNS = ("record", "subject")
_KINDS: dict[str, Kind] = {"record": "name", "subject": "name"}
_SHOWN = 10


def requested(field: str, names: Sequence[str | int]) -> list[str]:
    """Names in a request as the run has them, each once.

    Raises:
        InputError: a string instead of a list; a name that is empty, is neither text nor a whole number, or has white
            space at its ends. No name is quoted.
    """
    if isinstance(names, str | bytes):
        raise InputError(field, "is one string, which would be taken letter by letter; put it into a list")
    names_seen: dict[str, None] = {}
    problems: list[str] = []
    for number, given in enumerate(names, start=1):
        name, problem = _name(given)
        if problem is not None:
            problems.append(f"name {number} {problem}" if len(names) > 1 else f"the name {problem}")
        elif name is not None:
            names_seen[name] = None
    if problems:
        more = [f"and {len(problems) - _SHOWN} more names"] if len(problems) > _SHOWN else []
        raise InputError(field, [*problems[:_SHOWN], *more])
    return list(names_seen)


def requested_names(records: Sequence[str | int], subjects: Sequence[str | int]) -> dict[str, list[str]]:
    """Ids and subjects of a request, as `requested` has them."""
    return {"records": requested("records", records), "subjects": requested("subjects", subjects)}


def _name(given: object) -> tuple[str | None, str | None]:
    """A name, or what is wrong with it."""
    try:
        name = text_of(given)
    except ValueError as error:
        return None, str(error)
    if name is None:
        return None, "is empty; leave it out"
    return normal_form(name), space_problem(name)


def read_requests(data: Data) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Record ids and subjects from a table with a column `record`, a column `subject`, or both; empty cells are none.

    Raises:
        DataError: the file cannot be read, has neither column, or a column that cannot hold names.
    """
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
    return columns_read[0], columns_read[1]
