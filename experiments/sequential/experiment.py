"""Both trained on the same slices in the same order; tried after every slice."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.runner import Row
from experiments.runs import parameters_of, trained
from experiments.served import SystemSettings

SYSTEMS = {"s3t": None, "sequential": "sisa"}
"""Sequential training is SISA of one shard."""


class Config(SystemSettings):
    """One task."""

    seeds: tuple[int, ...]
    """Of the trainings."""


def points(config: Config) -> list[Row]:
    """One a training."""
    return [{"system": system, "train_seed": seed} for seed in config.seeds for system in SYSTEMS]


def measure(config: Config, point: Row) -> Row:
    """Accuracy after every slice, and the parameters that a stage stores: those that it trains."""
    found = config.found()
    recipe = config.recipe(found, method=SYSTEMS[point["system"]])
    recipe["training"]["seed"] = point["train_seed"]
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
