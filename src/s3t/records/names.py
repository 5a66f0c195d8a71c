"""Ids and subjects: what may be one, and the one form in which it is kept and asked for.

A name is text or a whole number. Floating-point numbers are refused: 7.0 from a data frame and 7 from a file could be
one record or two. Values without a text form (bytes, lists, dates, true) are refused, too. Text is kept in Unicode's
normal form C, in which a letter with its accent is one character however it was typed.
"""

from __future__ import annotations

import numbers
import unicodedata
from collections.abc import Callable
from typing import Any

import pyarrow as pa


def normal_form(name: str) -> str:
    """A name in normal form C.

    >>> normal_form("e\\u0301") == "\\u00e9"
    True
    """
    return unicodedata.normalize("NFC", name)


def text_of(value: Any) -> str | None:
    """A name as text, as it was given; None where it is missing.

    Raises:
        ValueError: the value may be no name; the message says what it is, never what it holds.

    >>> text_of(7), text_of("07"), text_of("")
    ('7', '07', None)
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        if not is_unicode(value):
            raise ValueError("is not UTF-8 text; correct it")
        return str(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise ValueError(f"is of type {type(value).__name__}; give text or a whole number")
    return str(int(value))


def space_problem(name: str) -> str | None:
    """Problem of white space in a name: readers cannot see it, and two names may differ in it alone.

    >>> space_problem("a b"), space_problem(" ").partition(";")[0]
    (None, 'is blank')
    """
    if not name.strip():
        return "is blank; leave the cell empty or name the subject"
    if name != name.strip():
        return "begins or ends with white space; take it away"
    return None


def is_text(kind: pa.DataType) -> bool:
    """True if a column of that type holds text, or only nulls."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(test(kind) for test in tests)


def may_be_names(kind: pa.DataType) -> bool:
    """True if a column of that type may hold ids or subjects."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return is_text(kind) or bool(pa.types.is_integer(kind))


def may_be_categories(kind: pa.DataType) -> bool:
    """True if a column of that type may hold labels or groups. These are declared, so 1.0 can only mean 1."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return may_be_names(kind) or bool(pa.types.is_boolean(kind) or pa.types.is_floating(kind))


def may_be_lists(kind: pa.DataType) -> bool:
    """True if a column of that type may hold lists of labels, or text to split into labels."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return may_be_categories(kind.value_type)
    return is_text(kind)


def may_be_numbers(kind: pa.DataType) -> bool:
    """True if a column of that type may hold the numbers of a regression."""
    return may_be_names(kind) or bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


_KINDS: tuple[tuple[Callable[[pa.DataType], Any], str], ...] = (
    (pa.types.is_floating, "floating-point numbers"),
    (pa.types.is_decimal, "decimal numbers"),
    (pa.types.is_integer, "whole numbers"),
    (pa.types.is_boolean, "true and false"),
    (pa.types.is_temporal, "dates or times"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_large_binary, "bytes"),
    (pa.types.is_fixed_size_binary, "bytes"),
    (pa.types.is_list, "lists"),
    (pa.types.is_large_list, "lists"),
    (pa.types.is_nested, "mappings"),
)


def type_in_words(kind: pa.DataType) -> str:
    """Content of a column of that type, in words: a mapping's type would name its keys.

    >>> type_in_words(pa.float64()), type_in_words(pa.struct({"key": pa.string()}))
    ('floating-point numbers', 'mappings')
    """
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return next((words for test, words in _KINDS if test(kind)), "values of another kind")


def is_unicode(text: str) -> bool:
    """True if a text can be encoded in UTF-8: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
