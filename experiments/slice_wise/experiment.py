"""Slice-wise and full training on the same records, for as many epochs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pydantic import Field
from scipy.stats import t

from experiments.runner import Row
from experiments.runs import recipe_of, trained
from experiments.settings import SeededSettings, SlicedTaskSettings
from experiments.tasks import task

SYSTEMS = {"slice-wise": None, "full": "full"}
CONFIDENCE = 0.95


class Config(SeededSettings):
    """Tasks, and what they have in common."""

    tried: int | None
    """Records to be tried on; None: all."""
    rank: int = Field(ge=1)
    """Of LoRA."""
    tasks: dict[str, SlicedTaskSettings]
    """By name."""


def points(config: Config) -> list[Row]:
    """One a training."""
    return [
        {"task": name, "system": system, "train_seed": seed}
        for name in config.tasks
        for seed in config.seeds
        for system in SYSTEMS
    ]


def measure(config: Config, point: Row) -> Row:
    """Train and try out: the task's own metric, and for slice-wise training that of every depth."""
    setting = config.tasks[point["task"]]
    found = task(point["task"], records=setting.records, tried=config.tried, made_up=config.made_up)
    method = SYSTEMS[point["system"]]
    recipe = recipe_of(
        found,
        setting.training(config.training, seed=point["train_seed"]),
        slices=1 if method else setting.slices,
        layers_per_slice=found.layers if method else None,
        method=method,
        rank=config.rank,
    )
    with trained(recipe, found) as run:
        evaluated = run.evaluate(found.test)
    return {
        "metric": found.metric,
        "largest_label": found.largest_label,
        "records": len(found.train),
        "record_passes": setting.epochs * len(found.train) * (1 if method else (setting.slices + 1) / 2),
        "tried": len(found.test),
        "score": evaluated.metrics[found.metric],
        "per_depth": [row[found.metric] for row in evaluated.per_depth],
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every task the means, and the difference with an interval of Student's t over the seeds.

    At the same epochs slice-wise training passes (L + 1) / 2 times as many records, through fewer trained layers.
    """
    found = {}
    for name in config.tasks:
        scores = {
            system: [row["score"] or 0.0 for row in rows if (row["task"], row["system"]) == (name, system)]
            for system in SYSTEMS
        }
        depths = [row["per_depth"] for row in rows if (row["task"], row["system"]) == (name, "slice-wise")]
        apart = [100 * (ours - full) for ours, full in zip(scores["slice-wise"], scores["full"], strict=True)]
        found[name] = {
            "metric": next(row["metric"] for row in rows if row["task"] == name),
            **{system: statistics.fmean(values) for system, values in scores.items()},
            "points_apart": statistics.fmean(apart),
            "points_interval": interval(apart),
            "per_depth": [statistics.fmean(value or 0.0 for value in own) for own in zip(*depths, strict=True)],
            "share_of_the_largest_label": next(row["largest_label"] for row in rows if row["task"] == name),
        }
    return {"tasks": found}


def interval(values: Sequence[float]) -> list[float] | None:
    """Of the mean, at CONFIDENCE; None of a single value.

    >>> [round(end, 2) for end in interval([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    if len(values) < 2:
        return None
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.fmean(values)
    return [mean - half, mean + half]
