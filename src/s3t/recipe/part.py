"""Base of every part of a recipe: frozen, unknown fields refused, numbers strict, no input in errors."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationInfo, field_validator


def descriptions_of(part: type[BaseModel]) -> dict[str, str]:
    """The description of each field that has one, by the field's name: the strings below them in the source.

    Pydantic reads them too (`use_attribute_docstrings`), but whenever the models are imported, as every command does.
    """
    (definition,) = ast.parse(inspect.getsource(part)).body
    found = {}
    for field, below in pairwise(definition.body if isinstance(definition, ast.ClassDef) else []):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = inspect.cleandoc(ast.literal_eval(below.value))
    return found


def _describe(schema: dict[str, Any], part: type[BaseModel]) -> None:
    for name, description in descriptions_of(part).items():
        schema["properties"][part.model_fields[name].alias or name]["description"] = description


def _refuse(value: Any, *kinds: type) -> Any:
    """Refuse values that are of some types, alone, in a list or in a mapping: pydantic would take true for 1."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for part in inner:
        _refuse(part, *kinds)
    if isinstance(value, kinds):
        raise ValueError(f"{value!r} is no number")
    return value


NumbersAlone = BeforeValidator(lambda value: _refuse(value, bool, str))
"""Validator of lists and mappings of numbers: "0.5" in their place hides mistakes."""


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


class Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra=_describe, hide_input_in_errors=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        wanted = info.field_name is not None and only_numbers(cls.model_fields[info.field_name].annotation)
        return _refuse(value, bool) if wanted else value
