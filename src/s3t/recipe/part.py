"""Base of every part of a recipe: frozen, unknown fields refused, no input in errors."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from s3t.recipe.descriptions import add_descriptions
from s3t.recipe.numbers import only_numbers, refuse_booleans


class Part(BaseModel):
    """Base of all parts."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", json_schema_extra=add_descriptions, hide_input_in_errors=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if info.field_name is not None and only_numbers(cls.model_fields[info.field_name].annotation):
            refuse_booleans(value)
        return value
