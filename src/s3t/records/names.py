"""Ids and subjects: what may be one, and the one form in which it is kept and asked for.

A name is text or a whole number. Floating-point numbers are refused: 7.0 from a data frame and 7 from a file could be
one record or two. Values without a text form (bytes, lists, dates, true) are refused, too. Text is kept in Unicode's
normal form C, in which a letter with its accent is one character however it was typed.
"""

from __future__ import annotations

import numbers
import unicodedata
from typing import Any


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


def is_unicode(text: str) -> bool:
    """True if a text can be encoded in UTF-8: a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
