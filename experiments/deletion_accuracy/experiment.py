"""Systems trained once, and what they answer after many random deletion orders."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from experiments.replay import Judge, Serving, counted, curves, of_prefixes
from experiments.runner import Row
from experiments.runs import expected_of, trained
from experiments.served import SystemSettings, beside_prototypes, every_order, protosisa, sisa
from experiments.tasks import Task
from s3t.sequences import Setting, select

LOOKED_AT = (10, 20, 40, 80)
"""Numbers of deletions that the summary tells of."""


class Config(SystemSettings):
    """One task, and every system on it."""

    budgets: tuple[int, ...]
    """B's of s3t."""
    selectors: tuple[str, ...]
    """Of s3t's orders."""
    sisa_weights: tuple[float, ...]
    """Of SISA's logits in ProtoSISA."""
    rounds: int = Field(ge=1)
    """Random deletion orders."""
    until: int = Field(ge=1)
    """Deletions of the last point."""
    step: int = Field(ge=1)
    """Deletions between two points."""
    retrained_after: tuple[int, ...]
    """Deletions after which full retraining is measured."""
    retrained_with: tuple[int, ...]
    """Its training seeds."""

    @property
    def grid(self) -> list[int]:
        """Numbers of deletions."""
        return list(range(0, self.until + 1, self.step))


def points(config: Config) -> list[Row]:
    """One a system; full retraining once for each number of deletions."""
    alike = (1, math.factorial(config.slices))  # budgets at which there is nothing to select
    return [
        *(
            {"system": "s3t", "budget": budget, "selector": selector}
            for budget in config.budgets
            for selector in (config.selectors[:1] if budget in alike else config.selectors)
        ),
        {"system": "sisa"},
        *({"system": "protosisa", "weight": weight} for weight in config.sisa_weights),
        *(
            {"system": "full", "deletions": count, "train_seed": seed}
            for count in config.retrained_after
            for seed in config.retrained_with
        ),
    ]


def measure(config: Config, point: Row) -> Row:
    """The system's curve; of full retraining the accuracy alone."""
    found = config.found()
    if point["system"] == "full":
        left = replace(found, train=found.train.iloc[point["deletions"] :])  # they lie in a random order
        layers = found.layers // config.slices * config.slices
        recipe = config.recipe(left, shards=1, slices=1, layers_per_slice=layers, method="full")
        recipe["training"]["seed"] = point["train_seed"]
        with trained(recipe, left) as run:
            return {"accuracy": run.evaluate(left.test, per_depth=False).accuracy}
    serving, sizes = _served(config, point, found)
    return curves(Judge(serving, expected_of(found)), config.grid, sizes, rounds=config.rounds, seed=config.seed)


def _served(config: Config, point: Row, found: Task) -> tuple[Serving, Any]:
    if point["system"] == "sisa":
        answers = sisa(config, found)
        return of_prefixes(answers.logits, answers.orders), answers.sizes
    if point["system"] == "protosisa":
        models, prototypes = protosisa(config, found)
        return beside_prototypes(models, prototypes, weight=point["weight"]), models.sizes
    answers = every_order(config, found)
    orders = select(point["selector"], Setting(slices=config.slices, budget=point["budget"], seed=config.seed))
    return of_prefixes(answers.logits, [orders] * config.shards), answers.sizes


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Deletions until half of the systems are dead, and accuracies where a reader looks."""
    grid = config.grid
    systems = {}
    for row in rows:
        if row["system"] == "full":
            continue
        alive = dict(zip(grid, row["alive"], strict=True))
        accuracy = dict(zip(grid, row["accuracy"], strict=True))
        systems[name_of(row)] = {
            "half_dead_after": next((count for count in grid if alive[count] < 0.5), None),
            "at_start": accuracy[0],
            **{f"after_{count}": accuracy[count] for count in LOOKED_AT if alive.get(count, 0) >= 0.5},
            "mean_of_all_points": float(np.mean(counted(row))),
        }
    return {
        "systems": systems,
        "full": {
            str(count): {"accuracy": float(np.mean(own)), "spread": float(np.std(own))}
            for count in config.retrained_after
            if (own := [row["accuracy"] for row in rows if row.get("deletions") == count])
        },
    }


def name_of(row: Row) -> str:
    """What a system is called in the summary.

    >>> name_of({"system": "s3t", "budget": 4, "selector": "survival"})
    's3t, B=4, survival'
    """
    told = [f"B={row['budget']}", row["selector"]] if "budget" in row else []
    return ", ".join([row["system"], *told, *([f"weight {row['weight']:g}"] if "weight" in row else [])])
