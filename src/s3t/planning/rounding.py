"""Numbers as documents show them: no more digits than are meant."""

from __future__ import annotations

from typing import Any


def rounded(document: Any, *, digits: int = 9) -> Any:
    """A JSON document with its fractions rounded to significant digits; sums of floats are not exact beyond.

    >>> rounded({"mean": 4.999999999999999, "depth": [2.3627096331104087, 240, None]}, digits=6)
    {'mean': 5.0, 'depth': [2.36271, 240, None]}
    """
    if isinstance(document, float):
        return float(f"{document:.{digits}g}")
    if isinstance(document, dict):
        return {name: rounded(value, digits=digits) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [rounded(value, digits=digits) for value in document]
    return document
