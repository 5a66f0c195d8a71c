"""Single values as the records keep them: labels and groups as text, whatever type the file had."""

from __future__ import annotations

import math
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
