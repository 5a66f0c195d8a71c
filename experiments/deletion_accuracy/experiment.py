"""Systems trained once, and what they answer after many random deletion orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from experiments.replay import Judge, Serving, always, counted, curves, of_prefixes, sisa_answers
from experiments.runner import Row
from experiments.runs import expected_of, trained
from experiments.served import SystemSettings, beside_prototypes, every_order, protosisa, sisa
from experiments.tasks import Task
from s3t.core import Order
from s3t.orders import Setting, select

LOOKED_AT = (0, 10, 20, 40, 80)
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
    return [
        *(
            {"system": "s3t", "budget": budget, "selector": selector}
            for budget in config.budgets
            for selector in _different(config, budget)
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
    """The system's curves: over the deletion orders that it survives, and over those that SISA survives; of full
    retraining the accuracy alone."""
    found = config.found()
    if point["system"] == "full":
        left = replace(found, train=found.train.iloc[point["deletions"] :])  # they lie in a random order
        layers = found.layers // config.slices * config.slices
        recipe = config.recipe(left, shards=1, slices=1, layers_per_slice=layers, method="full")
        recipe["training"]["seed"] = point["train_seed"]
        with trained(recipe, left) as run:
            return {"accuracy": run.evaluate(left.test, per_depth=False).accuracy}
    serving, sizes = _served(config, point, found)
    judge = Judge(serving, expected_of(found))
    own, beside = (
        curves(judge, config.grid, sizes, rounds=config.rounds, seed=config.seed, where=where)
        for where in (always, sisa_answers)
    )
    return own | {"accuracy_where_sisa_answers": beside["accuracy"]}


def _different(config: Config, budget: int) -> list[str]:
    """The selectors, without those that choose the same orders as one before."""
    first: dict[frozenset[Order], str] = {}
    for selector in config.selectors:
        first.setdefault(frozenset(_orders(config, budget, selector)), selector)
    return list(first.values())


def _orders(config: Config, budget: int, selector: str) -> tuple[Order, ...]:
    return select(selector, Setting(slices=config.slices, budget=budget, seed=config.seed))


def _served(config: Config, point: Row, found: Task) -> tuple[Serving, Any]:
    if point["system"] == "sisa":
        answers = sisa(config, found)
        return of_prefixes(answers.logits, answers.orders), answers.sizes
    if point["system"] == "protosisa":
        models, prototypes = protosisa(config, found)
        return beside_prototypes(models, prototypes, weight=point["weight"]), models.sizes
    answers = every_order(config, found)
    orders = _orders(config, point["budget"], point["selector"])
    return of_prefixes(answers.logits, [orders] * config.shards), answers.sizes


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Deletions until half of the systems are dead, and accuracies where a reader looks."""
    grid = config.grid
    systems = {}
    for row in rows:
        if row["system"] == "full":
            continue
        alive = dict(zip(grid, row["alive"], strict=True))
        told = {name: row[name] for name in ("alive", "accuracy", "accuracy_where_sisa_answers")}
        told["counted"] = counted(row)
        systems[name_of(row)] = {
            "half_dead_after": next((count for count in grid if alive[count] < 0.5), None),
            **{
                name: {str(count): value for count, value in zip(grid, values, strict=True) if count in LOOKED_AT}
                for name, values in told.items()
            },
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
