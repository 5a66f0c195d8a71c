"""Systems that live through a month of additions and deletions; the year after them is reckoned.

Times are CPU seconds of one thread, so that other work may run beside.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import Field

import s3t
from experiments.runner import Row
from experiments.runs import untrained
from experiments.served import SystemSettings
from experiments.tasks import Task

T = TypeVar("T")


class Config(SystemSettings):
    """One task, a month and a year."""

    records: int
    """On the first day."""
    days: int = Field(ge=1)
    """That are lived."""
    year: int = Field(ge=1)
    """Days that are reckoned."""
    come: float
    """Records of a day, as a share of the first ones."""
    go: float
    """Share of the present records that is deleted in a day."""
    systems: tuple[str, ...]
    learn_every: int = Field(ge=1)
    """Days between two trainings of s3t."""
    rank: int = Field(ge=1)
    """Of LoRA."""

    @property
    def new(self) -> int:
        """Records that come in a day."""
        return max(1, round(self.come * self.records))


def points(config: Config) -> list[Row]:
    """One a system."""
    return [{"system": system} for system in config.systems]


def measure(config: Config, point: Row) -> Row:
    """Accuracy by day, before the night, when what was deleted is gone and what came is not learned, and after it; and
    the seconds of each night."""
    found = config.model_copy(update={"records": config.records + config.days * config.new}).found()
    rows, test = found.train, found.test
    first = len(rows) - config.days * config.new
    chooser, present = random.Random(config.seed), list(rows["id"][:first])
    evening, morning, nights = list[float | None](), list[float | None](), list[float]()
    with untrained(_recipe(config, found, point["system"]), replace(found, train=rows[:first])) as run:
        run.parts.loaded.get()  # loading the model is no part of the times
        training, seconds = _timed(run.train)
        stages = {each.stage: each.seconds for each in training.summaries}
        scale, records = seconds / math.fsum(stages.values()), run.inventory().records
        shares = [sum(records[place] for place in {*stage.places}) / first for stage in stages]
        start = run.evaluate(test, per_depth=False).metrics[found.metric]
        for day in range(config.days):
            new = rows[first + day * config.new : first + (day + 1) * config.new]
            gone = chooser.sample(present, max(1, round(config.go * len(present))))
            present = [*(name for name in present if name not in gone), *new["id"]]
            run.delete(records=gone, repair=False)
            _, at_once = _timed(lambda: run.repair(hours=0))
            evening.append(_score(run, test, found.metric))
            _, at_night = _timed(lambda: (run.add(new), run.repair()))  # noqa: B023
            nights.append(at_once + at_night)
            morning.append(_score(run, test, found.metric))
        assert run.audit().ok
    return {
        "guess": found.guess,
        "first": start,
        "evening": evening,
        "morning": morning,
        "first_seconds": seconds,
        "night_seconds": nights,
        "stages": [
            {"seconds": scale * own, "share": share} for own, share in zip(stages.values(), shares, strict=True)
        ],
    }


def _recipe(config: Config, found: Task, system: str) -> dict[str, Any]:
    if system == "ridge":
        training = {"threads": 1, "seed": config.seed}
        return {**found.recipe, "method": "ridge", "training": training, "partition": {"salt": "experiments"}}
    if system == "full":
        shape: dict[str, Any] = {"slices": 1, "shards": 1, "layers_per_slice": found.layers, "method": "full"}
        return config.recipe(found, rank=config.rank, **shape) | {"additions": {"learn_every": 1}}
    recipe = config.recipe(found, rank=config.rank) | {"head": "ridge", "deletion": {"repair": "manual"}}
    return recipe | {"additions": {"learn_every": config.learn_every}}


def _score(run: s3t.Run, test: Any, metric: str) -> float | None:
    try:
        return float(run.evaluate(test, per_depth=False).metrics[metric])
    except s3t.NoLiveShardError:
        return None


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    """A result, and the CPU seconds that it took."""
    began = time.process_time()
    return work(), time.process_time() - began


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Of every system mean and least accuracy over the month, and its points beside full fine-tuning of the same
    night; hours of the month, lived and reckoned, and of the year, reckoned."""
    systems = {row["system"]: row for row in rows}
    full = systems["full"]["morning"]
    found: dict[str, Any] = {}
    for name, row in systems.items():
        hours = reckoned(config, name, row)
        scores = [score or 0.0 for when in ("evening", "morning") for score in row[when]]
        apart = [100 * (own - other) for own, other in zip(row["morning"], full, strict=True)]
        found[name] = {
            "mean": sum(scores) / len(scores),
            "least": min(scores),
            "apart": sum(apart) / len(apart),
            "apart_least": min(apart),
            "month_hours": (row["first_seconds"] + sum(row["night_seconds"])) / 3600,
            "month_hours_reckoned": hours[config.days],
            "year_hours": hours[-1],
        }
    return found


def reckoned(config: Config, system: str, row: Row) -> list[float]:
    """Hours of training by day of the year, the first training included. A stage costs what its records cost on the
    first day, and survives n deletions at random with a probability of (1 - share) ** n."""
    records, seconds, hours = float(config.records), row["first_seconds"], [row["first_seconds"] / 3600]
    for day in range(1, config.year + 1):
        gone, size = config.go * records, records / config.records
        records += config.new - gone
        if system == "full" or (system == "s3t" and day % config.learn_every == 0):
            seconds += size * row["first_seconds"]
        elif system == "s3t":
            seconds += size * math.fsum(each["seconds"] * (1 - (1 - each["share"]) ** gone) for each in row["stages"])
        else:
            seconds += row["first_seconds"] * (config.new + gone * records / len(row["stages"])) / config.records
        hours.append(seconds / 3600)
    return hours
