"""Upper bounds of a recipe's numbers, far above what anybody trains with: a digit too many is told, not tried.

Looked at when a run is made and not when it is opened, for runs of earlier versions may be beyond them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from s3t.recipe.schema import Recipe

MOST = {
    "adapter.alpha": 1_000_000,
    "adapter.layers": 10_000,
    "adapter.layers_per_slice": 10_000,
    "adapter.rank": 4_096,
    "deletion.repair.below_depth": 10_000,
    "image.crop": 1_024,
    "image.mean": 1_000,
    "image.std": 1_000,
    "prediction.adapter_memory": 2**50,
    "prediction.batch_size": 1_000_000,
    "text.max_length": 1_000_000,
    "training.batch_size": 1_000_000,
    "training.cache_disk": 2**50,
    "training.cache_memory": 2**50,
    "training.epochs": 10_000,
    "training.learning_rate": 1_000,
    "training.max_grad_norm": 1_000_000_000,
    "training.weight_decay": 1_000,
}
"""Upper bounds of numbers, also in lists, where the field has none of its own."""
MOST_NUMBERS = 20_000_000
"""Largest count of numbers in all orders of a run together."""


def bound_problems(recipe: Recipe) -> list[str]:
    """Problems of a recipe beyond its bounds, each with its field."""
    return [*_too_large(recipe), *_orders_problems(recipe), *_label_problems(recipe)]


def _too_large(recipe: Recipe) -> Iterator[str]:
    for field, most in MOST.items():
        value: Any = recipe
        for name in field.split("."):
            value = getattr(value, name, None)
        values = value if isinstance(value, list) else [value]
        if any(isinstance(one, int | float) and abs(one) > most for one in values):
            yield f"{field.replace('_depth', '-depth')}: at most {most:,}; lower it"
    if min(recipe.image.std) <= 0:
        yield "image.std: pixels are divided by it; give numbers above 0"


def _orders_problems(recipe: Recipe) -> list[str]:
    shards, slices = recipe.partition.shards, recipe.partition.slices
    if shards * slices * recipe.budget <= MOST_NUMBERS:
        return []
    return [
        f"partition: {shards:,} shards of {slices:,} slices in {recipe.budget:,} orders are more than "
        f"{MOST_NUMBERS:,} numbers; lower partition.shards, partition.slices or sequences.budget"
    ]


def _label_problems(recipe: Recipe) -> list[str]:
    blank = isinstance(recipe.labels, list) and any(not label.strip() for label in recipe.labels)
    return ["labels: one is empty or blank, and no record can have it; take it out"] if blank else []
