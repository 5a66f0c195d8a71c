"""Names of records and subjects, and requests that name some.

A name is text or a whole number. Floating-point numbers are refused: 7.0 from a data frame and 7 from a file could be
one record or two. Text is kept in Unicode's normal form C, in which a letter with its accent is one character.
"""

from __future__ import annotations

import numbers
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from s3t.errors import InputError

if TYPE_CHECKING:
    from s3t.records.reading import Data

COLUMNS = ("record", "subject")
"""Columns of a file of requests."""
_SHOWN = 10
_MOST_DIGITS = 12


class CellError(ValueError):
    """A cell or a name is wrong. The message says why, and never quotes it."""


def normal_form(name: str) -> str:
    """A name in normal form C.

    >>> normal_form("e\\u0301") == "\\u00e9"
    True
    """
    return unicodedata.normalize("NFC", name)


def text_of(value: Any) -> str | None:
    """A name as text, as it was given; None where it is missing.

    >>> text_of(7), text_of("07"), text_of("")
    ('7', '07', None)
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        if not is_unicode(value):
            raise CellError("is not UTF-8 text; correct it")
        return str(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise CellError(f"is of type {type(value).__name__}; give text or a whole number")
    return str(int(value))


def name_in(value: Any) -> str | None:
    """A name as text, without white space that its readers cannot see: two names may differ in it alone."""
    name = text_of(value)
    if name is None:
        return None
    if not name.strip():
        raise CellError("is blank; leave the cell empty or name the subject")
    if name != name.strip():
        raise CellError("begins or ends with white space; take it away")
    if "\n" in name or "\r" in name:
        raise CellError("holds a line's end; in a file, look for a stray quote before it")
    return name


def other_forms(name: str) -> list[str]:
    """Forms in which programs hand on the same id: with other zeros, as a decimal number, in other letters; itself too.

    >>> other_forms("7.0")[:4], "0007" in other_forms("7"), "7" in other_forms("0007")
    (['7.0', '7', '07', '007'], True, True)
    """
    number = name.removesuffix(".0").lstrip("0") or "0"
    padded = (number.zfill(width) for width in range(1, _MOST_DIGITS + 1)) if number.isdecimal() else ()
    return list(dict.fromkeys([name, *padded, name.lower(), name.upper(), name.casefold()]))


def is_unicode(text: str) -> bool:
    """True if a text can be encoded in UTF-8: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def requested(field: str, names: Sequence[str | int]) -> list[str]:
    """Names in a request as the run has them, each once."""
    if isinstance(names, str | bytes):
        raise InputError(field, "is one string, which would be taken letter by letter; put it into a list")
    names_seen: dict[str, None] = {}
    problems: list[str] = []
    for number, given in enumerate(names, start=1):
        try:
            if (name := name_in(given)) is None:
                raise CellError("is empty; leave it out")
            names_seen[normal_form(name)] = None
        except CellError as error:
            problems.append(f"name {number} {error}" if len(names) > 1 else f"the name {error}")
    if problems:
        more = [f"and {len(problems) - _SHOWN} more names"] if len(problems) > _SHOWN else []
        raise InputError(field, [*problems[:_SHOWN], *more])
    return list(names_seen)


def requested_names(records: Sequence[str | int], subjects: Sequence[str | int]) -> dict[str, list[str]]:
    """Ids and subjects of a request, as `requested` has them. An empty list is a program's mistake."""
    names = {"records": requested("records", records), "subjects": requested("subjects", subjects)}
    if not any(names.values()):
        raise InputError("the request", "names nothing; give at least one of records or subjects")
    return names


def read_requests(data: Data) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Record ids and subjects of a table with a column `record`, a column `subject`, or both; empty cells are none."""
    from s3t.records.reading import columns_in_words, read_data, type_problem

    table = read_data(data, columns=dict.fromkeys(COLUMNS, "name"))
    present, problems, found = table.rows.column_names, table.problems, {name: dict[str, None]() for name in COLUMNS}
    # A name may occur more than once: who asks for a deletion in either column means it.
    for name, column in zip(present, table.rows.columns, strict=True):
        if name not in COLUMNS:
            continue
        if (problem := type_problem(column.type, "name")) is not None:
            problems.add(f"column {name!r} {problem}")
        else:
            found[name] |= dict.fromkeys(filter(None, map(text_of, column.to_pylist())))
    if not any(name in COLUMNS for name in present):
        words = columns_in_words(present, COLUMNS)
        problems.add(f"needs a column 'record' or 'subject' ({words}): rename the id column")
    elif not problems and not any(found.values()):
        problems.add("holds no names; give at least one")
    problems.refuse()
    return tuple(found["record"]), tuple(found["subject"])
