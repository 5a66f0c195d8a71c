"""Both trained on the same slices in the same order; tried after every slice."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from experiments.runner import Row
from experiments.runs import parameters_of, recipe_of, trained
from experiments.settings import Settings
from experiments.tasks import task

SYSTEMS = {"s3t": None, "sequential": "sisa"}
"""Sequential training is SISA of one shard."""


class Config(Settings):
    """One task."""

    seeds: tuple[int, ...]
    """Of the trainings."""
    made_up: bool
    """Made-up records."""
    task: str
    """By name."""
    records: int | None
    """To train on; None: all."""
    tried: int | None
    """To be tried on; None: all."""
    slices: int = Field(ge=1)
    """L."""
    training: dict[str, Any]
    """Of the recipe."""


def points(config: Config) -> list[Row]:
    """One a training."""
    return [{"system": system, "train_seed": seed} for seed in config.seeds for system in SYSTEMS]


def measure(config: Config, point: Row) -> Row:
    """Accuracy after every slice, and the parameters that a stage stores: those that it trains."""
    found = task(config.task, records=config.records, tried=config.tried, made_up=config.made_up)
    recipe = recipe_of(
        found,
        config.training | {"seed": point["train_seed"]},
        slices=config.slices,
        method=SYSTEMS[point["system"]],
    )
    with trained(recipe, found) as run:
        evaluated = run.evaluate(found.test)
        return {
            "accuracy": [row["accuracy"] for row in evaluated.per_depth],
            "parameters": parameters_of(run),
        }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Mean accuracy after every slice, and parameters a stage."""
    of = {system: [row for row in rows if row["system"] == system] for system in SYSTEMS}
    found: Row = {
        system: {
            "accuracy": [statistics.fmean(values) for values in zip(*(row["accuracy"] for row in own), strict=True)],
            "parameters": own[0]["parameters"],
        }
        for system, own in of.items()
    }
    last = [found[system]["accuracy"][-1] for system in SYSTEMS]
    return found | {
        "points_above_at_the_end": 100 * (last[0] - last[1]),
        "times_fewer_parameters": found["sequential"]["parameters"] / found["s3t"]["parameters"],
    }
