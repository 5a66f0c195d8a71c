"""Slice-wise and full training of a language model on instructions, for as many epochs; and neither."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from experiments.chance import interval
from experiments.runner import Row
from experiments.runs import recipe_of, trained
from experiments.settings import SeededSettings
from experiments.tasks import task

BASE, OURS, FULL = "base", "slice-wise", "full"


class Config(SeededSettings):
    """One task, and how it is trained."""

    task: str
    """By name."""
    records: int | None
    """To train on; None: all."""
    tried: int | None
    """To be tried on; None: all."""
    slices: int = Field(ge=1)
    """L; a block is as many layers as there are, divided by L."""
    rank: int = Field(ge=1)
    """Of LoRA; alpha is twice as much."""
    epochs: int = Field(ge=1)
    """Of every stage, and of full training."""
    learning_rate: float = Field(gt=0)
    """Of both."""


def points(config: Config) -> list[Row]:
    """One a training; the base, which is not trained, once."""
    trainings = [{"system": system, "train_seed": seed} for seed in config.seeds for system in (OURS, FULL)]
    return [{"system": BASE, "train_seed": config.seeds[0]}, *trainings]


def measure(config: Config, point: Row) -> Row:
    """Train and try out: perplexity of outputs, and for slice-wise training that of every depth."""
    found = task(config.task, records=config.records, tried=config.tried, made_up=config.made_up)
    whole = point["system"] != OURS
    epochs = 0 if point["system"] == BASE else config.epochs
    recipe = recipe_of(
        found,
        config.training | {"learning_rate": config.learning_rate, "epochs": epochs, "seed": point["train_seed"]},
        slices=1 if whole else config.slices,
        layers_per_slice=found.layers if whole else None,
        method="full" if whole else None,
        rank=config.rank,
    )
    with trained(recipe, found) as run:
        evaluated = run.evaluate(found.test)
    weights = Path(found.recipe["base_model"]) / "model.safetensors"
    return {
        "base_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "records": len(found.train),
        "record_passes": len(found.train) * epochs * (1 if whole else (config.slices + 1) / 2),
        "tried": len(found.test),
        "tokens": evaluated.metrics["tokens"],
        "perplexity": evaluated.metrics["perplexity"],
        "per_depth": [row["perplexity"] for row in evaluated.per_depth],
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """Means over the seeds, how far slice-wise is above full training (in %), and the share of its gain over the base.

    The gain is what training takes off the mean loss of a token. At the same epochs slice-wise training passes
    (L + 1) / 2 times as many records, through fewer trained layers.
    """
    own = {system: [row["perplexity"] for row in rows if row["system"] == system] for system in (BASE, OURS, FULL)}
    (base,) = own[BASE]
    apart = [100 * (ours / full - 1) for ours, full in zip(own[OURS], own[FULL], strict=True)]
    gains = {system: math.log(base / statistics.geometric_mean(own[system])) for system in (OURS, FULL)}
    depths = [row["per_depth"] for row in rows if row["system"] == OURS]
    found: dict[str, Any] = {
        "perplexity": {system: statistics.fmean(values) for system, values in own.items()},
        "percent_above_full": {"mean": statistics.fmean(apart), "interval": interval(apart), "by_seed": apart},
        "full_percent_below_base": 100 * (1 - statistics.fmean(own[FULL]) / base),
        "share_of_full_gain": gains[OURS] / gains[FULL] if gains[FULL] > 0 else None,
        "per_depth": [statistics.fmean(at) for at in zip(*depths, strict=True)],
    }
    return found
