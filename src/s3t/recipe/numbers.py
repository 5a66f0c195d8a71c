"""Numbers of a recipe: pydantic takes true for 1 and "0.5" for 0.5, where somebody made a mistake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BeforeValidator


def _numbers_alone(value: Any) -> Any:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in inner:
        _numbers_alone(part)
    if isinstance(value, bool | str):
        raise ValueError(f"{value!r} is no number")
    return value


NumbersAlone = BeforeValidator(_numbers_alone)
"""For lists and mappings of numbers."""
