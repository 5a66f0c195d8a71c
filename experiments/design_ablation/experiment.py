"""Slice-wise training in both directions, with more and more of the earlier slices seen again."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from experiments.runner import Row
from experiments.runs import recipe_of, trained
from experiments.settings import SeededSettings, SlicedTaskSettings
from experiments.tasks import task


class Config(SeededSettings):
    """Tasks and designs."""

    tried: int | None
    """Records to be tried on; None: all."""
    as_many_passes: bool
    """Whether stages that see nothing again are also trained for as many records as those that see all."""
    directions: tuple[str, ...]
    """Of the method."""
    replays: tuple[float, ...]
    """Of the method."""
    tasks: dict[str, SlicedTaskSettings]
    """By name."""

    @property
    def shares(self) -> list[float | str]:
        """What is seen again, case by case."""
        return [*self.replays, *([AS_MANY] if self.as_many_passes else [])]


AS_MANY = "0, as many passes"
"""In the place of a share: nothing again, for as many records as if it were all."""


def points(config: Config) -> list[Row]:
    """One a training."""
    return [
        {"task": name, "direction": direction, "replay": replay, "train_seed": seed}
        for name in config.tasks
        for direction in config.directions
        for replay in config.shares
        for seed in config.seeds
    ]


def measure(config: Config, point: Row) -> Row:
    """Accuracy at every depth; and the cost, in passes of a record through the model and back."""
    setting = config.tasks[point["task"]]
    found = task(point["task"], records=setting.records, tried=config.tried, made_up=config.made_up)
    longer = point["replay"] == AS_MANY
    replay = 0.0 if longer else point["replay"]
    epochs = math.ceil(setting.epochs * (setting.slices + 1) / 2) if longer else setting.epochs
    recipe = recipe_of(
        found,
        setting.training(config.training, seed=point["train_seed"]) | {"epochs": epochs},
        slices=setting.slices,
        method={"name": "s3t", "direction": point["direction"], "replay": replay},
    )
    with trained(recipe, found) as run:
        evaluated = run.evaluate(found.test)
    own = len(found.train) / setting.slices
    seen = sum(own + replay * own * depth for depth in range(setting.slices))
    return {
        "accuracy": evaluated.accuracy,
        "per_depth": [row["accuracy"] for row in evaluated.per_depth],
        "record_passes": epochs * seen,
        "guess": found.guess,
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every task and design the mean accuracy, its standard deviation over the seeds, and the cost."""
    found: dict[str, dict[str, Any]] = {}
    for name in config.tasks:
        designs = {}
        for direction in config.directions:
            for replay in config.shares:
                chosen = [
                    row for row in rows if (row["task"], row["direction"], row["replay"]) == (name, direction, replay)
                ]
                scores = [row["accuracy"] for row in chosen]
                designs[f"{direction}, {replay}"] = {
                    "accuracy": statistics.fmean(scores),
                    "spread": statistics.stdev(scores) if len(scores) > 1 else None,
                    "record_passes": chosen[0]["record_passes"],
                }
        found[name] = designs | {"guess": next(row["guess"] for row in rows if row["task"] == name)}
    return found
