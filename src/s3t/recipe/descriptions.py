"""Descriptions of a recipe's fields: the strings below them in the source, read when they are asked for.

Pydantic reads them too (`use_attribute_docstrings`), but whenever the models are imported, as every command does.
"""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import Any

from pydantic import BaseModel


def descriptions_of(part: type[BaseModel]) -> dict[str, str]:
    """The description of each field that has one, by the field's name."""
    (definition,) = ast.parse(inspect.getsource(part)).body
    found = {}
    for field, below in pairwise(definition.body if isinstance(definition, ast.ClassDef) else []):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = inspect.cleandoc(ast.literal_eval(below.value))
    return found


def add_descriptions(schema: dict[str, Any], part: type[BaseModel]) -> None:
    """Put the descriptions into a part's JSON schema; pydantic's `json_schema_extra`."""
    for name, description in descriptions_of(part).items():
        schema["properties"][part.model_fields[name].alias or name]["description"] = description
