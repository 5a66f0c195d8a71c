"""Slice-wise training under every shape that fits into the model."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from experiments.runner import Row
from experiments.runs import recipe_of, trained
from experiments.settings import SeededSettings, TaskSettings
from experiments.tasks import task


class Config(SeededSettings):
    """Tasks and shapes."""

    shapes: tuple[tuple[int, int], ...]
    """Layers a slice, and slices."""
    tasks: dict[str, TaskSettings]
    """By name."""


def points(config: Config) -> list[Row]:
    """One a training."""
    return [
        {"task": name, "layers": layers, "slices": slices, "train_seed": seed}
        for name in config.tasks
        for layers, slices in config.shapes
        for seed in config.seeds
    ]


def measure(config: Config, point: Row) -> Row:
    """The score of the full depth, and of every other."""
    setting = config.tasks[point["task"]]
    found = task(point["task"], records=setting.records, made_up=config.made_up)
    recipe = recipe_of(
        found,
        setting.training(config.training, seed=point["train_seed"]),
        slices=point["slices"],
        layers_per_slice=point["layers"],
    )
    with trained(recipe, found) as run:
        evaluated = run.evaluate(found.test)
    return {
        "guess": found.guess,
        "score": evaluated.metrics[found.metric],
        "per_depth": [row[found.metric] for row in evaluated.per_depth],
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every task and shape the mean score and its standard deviation over the seeds."""
    found: dict[str, dict[str, Any]] = {name: {} for name in config.tasks}
    for name in config.tasks:
        for layers, slices in config.shapes:
            scores = [
                row["score"] for row in rows if (row["task"], row["layers"], row["slices"]) == (name, layers, slices)
            ]
            spread = statistics.stdev(scores) if len(scores) > 1 else None
            found[name][f"{layers}x{slices}"] = {"score": statistics.fmean(scores), "spread": spread}
    return found
