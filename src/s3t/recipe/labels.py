"""Labels and groups as text, whatever type the file had: names, the numbers that stand for them, true and false."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

_UNSEEN = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff]")
"""Soft hyphen, zero-width space, marks of direction, variation selectors, byte order mark."""


def name_of(value: Any) -> str | None:
    """A label or group as text, or None where it is missing or has no exact text.

    Whole numbers lose their type (7, 7.0 and "7" are one label: a column of integers with a gap reads as floats).

    >>> name_of(7), name_of(7.0), name_of("7"), name_of(True), name_of(float("nan")), name_of(" ")
    ('7', '7', '7', 'true', None, None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value.is_integer() else repr(value)
    if value is None or not str(value).strip():
        return None
    return str(value)


def comparison_key(name: str) -> str:
    """A name without what its readers cannot see: Unicode form, blanks but one, marks without width. Joiners are seen.

    >>> comparison_key("e\\u0301te\\u0301\\u00a0 1\\u200b") == comparison_key("\\u00e9t\\u00e9 1")
    True
    """
    return " ".join(_UNSEEN.sub("", unicodedata.normalize("NFC", name)).split())


def alike(names: Iterable[str]) -> list[list[str]]:
    """Groups of different names that nobody can tell apart.

    >>> alike(["a b", "c", "a  b", "c"])
    [['a b', 'a  b']]
    """
    by_key: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        by_key.setdefault(comparison_key(name), []).append(name)
    return [group for group in by_key.values() if len(group) > 1]


def refuse_untyped(names: Iterable[Any], what: str) -> None:
    """Refuses declared names that YAML reads as something else than text or a whole number."""
    untyped = [name for name in names if name is None or isinstance(name, bool | float)]
    if untyped:
        raise ValueError(f"{untyped} are booleans, numbers or null to YAML; put such {what} in quotes")


def label_of(value: Any, labels: Mapping[str, str]) -> str | None:
    """The label of a cell, among labels by the names of their values; None if it holds none. An undeclared label is
    returned unchanged. A boolean is the label `true`, else `True`, else what 1 stands for.

    >>> [label_of(value, {"no": "no", "yes": "yes", "1": "yes"}) for value in (1, "1", "yes", True, 7)]
    ['yes', 'yes', 'yes', 'yes', '7']
    """
    name = name_of(value)
    if name is None:
        return None
    names = [name, str(value), str(int(value))] if isinstance(value, bool) else [name]
    return next((labels[each] for each in names if each in labels), name)
