"""Single values as the records keep them: labels and groups as text, whatever type the file had; numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any


def name_of(value: Any) -> str | None:
    """A label or group as text, or None where it is missing or has no exact text.

    Whole numbers lose their type (7, 7.0 and "7" are one label: a column of integers with a gap reads as floats).

    >>> name_of(7), name_of(7.0), name_of("7"), name_of(True), name_of(float("nan")), name_of("")
    ('7', '7', '7', 'true', None, None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return str(int(value)) if value.is_integer() else repr(value)
    if value is None or value == "":
        return None
    return str(value)


def number_of(value: Any) -> float | None:
    """A regression label as a finite number, or None.

    >>> number_of("2.5"), number_of(3), number_of("x"), number_of(float("inf")), number_of(10**400)
    (2.5, 3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
