"""Slice-wise training in both directions, with more and more of the earlier slices seen again."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from experiments.runner import Row
from experiments.runs import recipe_of, trained
from experiments.settings import SeededSettings, SlicedTaskSettings
from experiments.tasks import task


class Config(SeededSettings):
    """Tasks and designs."""

    directions: tuple[str, ...]
    """Of the method."""
    replays: tuple[float, ...]
    """Of the method."""
    tasks: dict[str, SlicedTaskSettings]
    """By name."""


def points(config: Config) -> list[Row]:
    """One a training."""
    return [
        {"task": name, "direction": direction, "replay": replay, "train_seed": seed}
        for name in config.tasks
        for direction in config.directions
        for replay in config.replays
        for seed in config.seeds
    ]


def measure(config: Config, point: Row) -> Row:
    """Accuracy at every depth; and the cost, in passes of a record through the model and back."""
    setting = config.tasks[point["task"]]
    found = task(point["task"], records=setting.records, made_up=config.made_up)
    method = {"name": "s3t", "direction": point["direction"], "replay": point["replay"]}
    recipe = recipe_of(
        found, setting.training(config.training, seed=point["train_seed"]), slices=setting.slices, method=method
    )
    with trained(recipe, found) as run:
        evaluated = run.evaluate(found.test)
    own = len(found.train) / setting.slices
    seen = sum(own + point["replay"] * own * depth for depth in range(setting.slices))
    return {
        "accuracy": evaluated.accuracy,
        "per_depth": [row["accuracy"] for row in evaluated.per_depth],
        "record_passes": setting.epochs * seen,
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every task and design the mean accuracy, its standard deviation over the seeds, and the cost."""
    found: dict[str, dict[str, Any]] = {}
    for name in config.tasks:
        designs = {}
        for direction in config.directions:
            for replay in config.replays:
                chosen = [
                    row for row in rows if (row["task"], row["direction"], row["replay"]) == (name, direction, replay)
                ]
                scores = [row["accuracy"] for row in chosen]
                designs[f"{direction}, {replay:g}"] = {
                    "accuracy": statistics.fmean(scores),
                    "spread": statistics.stdev(scores) if len(scores) > 1 else None,
                    "record_passes": chosen[0]["record_passes"],
                }
        found[name] = designs
    return found
