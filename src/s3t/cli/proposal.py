"""Recipe lines of a plan's proposal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from s3t.recipe import Recipe


def recipe_lines(
    recipe: Recipe | None,
    *,
    partition: Mapping[str, int],
    layers_per_slice: int,
    repair: Mapping[str, Any],
    sequences: Mapping[str, Any] | None = None,
) -> list[str]:
    """Lines, one a field; each replaces the recipe's field of the same name.

    Settings of the given recipe's `adapter` and `deletion` that the plan does not decide are kept.
    """
    from s3t.recipe.loading import to_yaml

    adapter, deletion = ({}, {}) if recipe is None else (_declared(recipe.adapter), _declared(recipe.deletion))
    fields: dict[str, Any] = {"partition": dict(partition)}
    if sequences is not None:
        fields["sequences"] = dict(sequences)
    fields["adapter"] = adapter | {"layers_per_slice": layers_per_slice}
    fields["deletion"] = deletion | {"repair": dict(repair)}
    return [
        f"{name}: {to_yaml(value, default_flow_style=True, width=math.inf).strip()}" for name, value in fields.items()
    ]


def _declared(part: Any) -> dict[str, Any]:
    content: dict[str, Any] = part.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return content


def left_out(recipe: Recipe) -> list[str]:
    """Given fields that the recipe lines leave out: a plan assumes that all slices are alike."""
    fields = {
        "partition.group": recipe.partition.group is not None,
        "partition.salt": recipe.partition.salt is not None,
        "sequences.prior": recipe.sequences.prior is not None,
    }
    return [name for name, is_given in fields.items() if is_given]
