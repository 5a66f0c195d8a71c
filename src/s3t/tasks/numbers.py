"""Numbers as tables have them."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any


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
