"""The lines of a recipe that hold what was planned: to be put in the place of its lines of the same names."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from s3t.planning import Candidate
    from s3t.recipe import Recipe


def recipe_lines(best: Candidate, *, layers_per_slice: int, recipe: Recipe | None) -> list[str]:
    """One line a field, as YAML.

    Args:
        best: the system.
        layers_per_slice: of its slices.
        recipe: whose other settings of the adapter and of deletions are kept.
    """
    adapter, deletion = ({}, {}) if recipe is None else (_declared(recipe.adapter), _declared(recipe.deletion))
    fields: dict[str, dict[str, Any]] = {
        "partition": {"shards": best.shards, "slices": best.slices},
        "sequences": {"budget": best.budget, "selector": best.selector},
        "adapter": adapter | {"layers_per_slice": layers_per_slice},
        "deletion": deletion | {"repair": {"below-depth": best.depth}},
    }
    return [f"{name}: {_flow(value)}" for name, value in fields.items()]


def left_out(recipe: Recipe) -> list[str]:
    """Fields of a recipe that the lines have no room for, for a plan takes all slices to be alike."""
    columns = {
        "partition.group": recipe.partition.group is not None,
        "partition.salt": recipe.partition.salt is not None,
        "sequences.prior": recipe.sequences.prior is not None,
    }
    return [name for name, is_given in columns.items() if is_given]


def _declared(part: Any) -> dict[str, Any]:
    content: dict[str, Any] = part.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return content


def _flow(value: dict[str, Any]) -> str:
    return str(yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=math.inf)).strip()
