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

SYSTEMS = {"slice-wise": None, "full": "full"}
AS_MANY = "full, as many passes"
"""Full training that sees as many records as slice-wise training, rounded up to an epoch."""


class Config(SeededSettings):
    """Tasks, and what they have in common."""

    tried: int | None
    """Records to be tried on; None: all."""
    rank: int = Field(ge=1)
    """Of LoRA."""
    as_many_passes: tuple[str, ...]
    """Tasks trained in full also for more epochs, until it has seen as many records as slice-wise training."""
    tasks: dict[str, SlicedTaskSettings]
    """By name."""


def points(config: Config) -> list[Row]:
    """One a training."""
    return [
        {"task": name, "system": system, "train_seed": seed}
        for name in config.tasks
        for seed in config.seeds
        for system in (*SYSTEMS, *([AS_MANY] if name in config.as_many_passes else []))
    ]


def measure(config: Config, point: Row) -> Row:
    """Train and try out: the task's own metric, and for slice-wise training that of every depth."""
    setting = config.tasks[point["task"]]
    found = task(point["task"], records=setting.records, tried=config.tried, made_up=config.made_up)
    method = SYSTEMS.get(point["system"], "full")
    epochs = setting.epochs * (1 if point["system"] in SYSTEMS else (setting.slices + 1) / 2)
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
    """For every task the means, and the difference with an interval of Student's t over the seeds; and that in the
    mean over the tasks on which full training is better than a guess.

    At the same epochs slice-wise training passes (L + 1) / 2 times as many records, through fewer trained layers.
    """
    guesses = {row["task"]: row["guess"] for row in rows}
    found: dict[str, Any] = {}
    for name in config.tasks:
        scores = {
            system: [row["score"] or 0.0 for row in rows if (row["task"], row["system"]) == (name, system)]
            for system in SYSTEMS
        }
        depths = [row["per_depth"] for row in rows if (row["task"], row["system"]) == (name, "slice-wise")]
        apart = [100 * (ours - full) for ours, full in zip(scores["slice-wise"], scores["full"], strict=True)]
        more = [row["score"] for row in rows if (row["task"], row["system"]) == (name, AS_MANY)]
        found[name] = {
            "metric": next(row["metric"] for row in rows if row["task"] == name),
            **{system: statistics.fmean(values) for system, values in scores.items()},
            "points_apart": statistics.fmean(apart),
            "points_interval": interval(apart),
            "per_depth": [statistics.fmean(value or 0.0 for value in own) for own in zip(*depths, strict=True)],
            "apart_by_seed": apart,
            **({AS_MANY: statistics.fmean(more)} if more else {}),
            "better_than_a_guess": statistics.fmean(scores["full"]) > CLEARLY + guesses[name],
        }
    counted = [own["apart_by_seed"] for own in found.values() if own["better_than_a_guess"]]
    pooled = [statistics.fmean(at) for at in zip(*counted, strict=True)]
    return {
        "tasks": found,
        "points_apart": statistics.fmean(pooled) if pooled else None,
        "points_interval": interval(pooled),
    }
