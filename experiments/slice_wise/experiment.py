"""Slice-wise and full training on the same records, for as many epochs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from experiments.chance import CLEARLY, interval
from experiments.runner import Row
from experiments.runs import recipe_of, trained
from experiments.settings import SeededSettings, SlicedTaskSettings
from experiments.tasks import task

AS_MANY = "full, as many passes"
"""Full training that sees as many records as slice-wise training, rounded up to an epoch."""
SYSTEMS = {"slice-wise": None, "full": "full", AS_MANY: "full"}
"""Methods, by what is compared; None: s3t."""


class Config(SeededSettings):
    """Tasks, and what they have in common."""

    tried: int | None
    """Records to be tried on; None: all."""
    rank: int = Field(ge=1)
    """Of LoRA."""
    tasks: dict[str, SlicedTaskSettings]
    """By name."""
    systems: tuple[str, ...] = Field(default=tuple(SYSTEMS), exclude_if=lambda systems: systems == tuple(SYSTEMS))
    """Some of `SYSTEMS`, slice-wise and full training among them."""


def points(config: Config) -> list[Row]:
    """One a training."""
    return [
        {"task": name, "system": system, "train_seed": seed}
        for name in config.tasks
        for seed in config.seeds
        for system in config.systems
    ]


def measure(config: Config, point: Row) -> Row:
    """Train and try out: the task's own metric, and for slice-wise training that of every depth."""
    setting = config.tasks[point["task"]]
    found = task(point["task"], records=setting.records, tried=config.tried, made_up=config.made_up)
    method = SYSTEMS[point["system"]]
    epochs = setting.epochs * ((setting.slices + 1) / 2 if point["system"] == AS_MANY else 1)
    recipe = recipe_of(
        found,
        setting.training(config.training, seed=point["train_seed"]) | {"epochs": math.ceil(epochs)},
        slices=1 if method else setting.slices,
        layers_per_slice=found.layers if method else None,
        method=method,
        rank=config.rank,
    )
    with trained(recipe, found) as run:
        evaluated = run.evaluate(found.test)
    return {
        "metric": found.metric,
        "guess": found.guess,
        "records": len(found.train),
        "record_passes": len(found.train) * math.ceil(epochs) * (1 if method else (setting.slices + 1) / 2),
        "tried": len(found.test),
        "score": evaluated.metrics[found.metric],
        "per_depth": [row[found.metric] for row in evaluated.per_depth],
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every task the means, and the differences with an interval of Student's t over the seeds; and those in the
    mean over the tasks on which full training is better than a guess.

    At the same epochs slice-wise training passes (L + 1) / 2 times as many records, through fewer trained layers.
    """
    guesses = {row["task"]: row["guess"] for row in rows}
    found: dict[str, Any] = {}
    apart: dict[str, dict[str, list[float]]] = {system: {} for system in config.systems if SYSTEMS[system]}
    for name in config.tasks:
        own = {
            system: [row for row in rows if (row["task"], row["system"]) == (name, system)] for system in config.systems
        }
        scores = {system: [row["score"] or 0.0 for row in each] for system, each in own.items()}
        depths = [row["per_depth"] for row in own["slice-wise"]]
        for system, by_task in apart.items():
            pairs = zip(scores["slice-wise"], scores[system], strict=True)
            by_task[name] = [100 * (ours - full) for ours, full in pairs]
        found[name] = {
            "metric": own["full"][0]["metric"],
            **{system: statistics.fmean(values) for system, values in scores.items()},
            "points_apart": {system: _mean(by_task[name]) for system, by_task in apart.items()},
            "per_depth": [statistics.fmean(value or 0.0 for value in at) for at in zip(*depths, strict=True)],
            "better_than_a_guess": statistics.fmean(scores["full"]) > CLEARLY + guesses[name],
        }
    counted = [name for name in config.tasks if found[name]["better_than_a_guess"]]
    pooled = {
        system: [statistics.fmean(at) for at in zip(*(by_task[name] for name in counted), strict=True)]
        for system, by_task in apart.items()
    }
    return {"tasks": found, "points_apart": {system: _mean(points) for system, points in pooled.items()}}


def _mean(points: Sequence[float]) -> Row | None:
    return {"mean": statistics.fmean(points), "interval": interval(points), "by_seed": list(points)} if points else None
