"""Descriptions of models' fields, in their JSON schemas: the strings below the fields in the source.

Pydantic reads them too (`use_attribute_docstrings`), but whenever the models are imported, as every command does.
"""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import Any

from pydantic import BaseModel


def descriptions_of(model: type[BaseModel]) -> dict[str, str]:
    """The description of each field that has one, inherited ones included, by the field's name."""
    found = {}
    for part in reversed([each for each in model.__mro__ if issubclass(each, BaseModel) and each.model_fields]):
        (definition,) = ast.parse(inspect.getsource(part)).body
        for field, below in pairwise(definition.body if isinstance(definition, ast.ClassDef) else []):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                found[field.target.id] = inspect.cleandoc(ast.literal_eval(below.value))
    return found


def describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Add the descriptions to a model's JSON schema: its `json_schema_extra`."""
    for name, description in descriptions_of(model).items():
        field = model.model_fields.get(name)
        if field is not None and (shown := schema["properties"].get(field.alias or name)) is not None:  # not excluded
            shown["description"] = description
