"""Strict numbers of a recipe: pydantic would take true for 1 and "0.5" for 0.5, which hides mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from pydantic import BeforeValidator


def _numbers_alone(value: Any) -> Any:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in inner:
        _numbers_alone(part)
    if isinstance(value, bool | str):
        raise ValueError(f"{value!r} is no number")
    return value


NumbersAlone = BeforeValidator(_numbers_alone)
"""Validator of lists and mappings of numbers."""


def only_numbers(annotation: Any) -> bool:
    """True if a field can hold a number, or several, and no boolean.

    >>> only_numbers(list[float] | None), only_numbers(int | bool), only_numbers(str)
    (True, False, False)
    """
    kinds = _kinds(annotation)
    return any(issubclass(kind, int | float) for kind in kinds) and bool not in kinds


def _kinds(annotation: Any) -> set[type]:
    if inner := get_args(annotation):
        return {kind for part in inner for kind in _kinds(part)}
    return {annotation} if isinstance(annotation, type) else set()


def refuse_booleans(value: Any) -> None:
    """Refuse true and false, alone or in a list."""
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, bool):
            raise ValueError(f"{one!r} is no number")
