"""Steps of training the top layers of a model at once, timed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from transformers import AutoModel, RobertaConfig

from benchmarks.variant import Stopwatch, steady
from experiments.runner import Row
from experiments.runs import recipe_of, untrained
from experiments.settings import Settings
from experiments.tasks import Task, task
from s3t.models.source import model_folder

CACHED = (True, False)


class Model(BaseModel):
    """What is timed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: tuple[int, ...]
    """That are trained, from the top."""
    records: int = Field(ge=1)
    """An epoch."""


class Config(Settings):
    """Models, and how long."""

    made_up: bool
    """Made-up records."""
    epochs: int = Field(ge=2)
    """The first is not counted."""
    training: dict[str, Any]
    """Of the recipe."""
    models: dict[str, Model]
    """MiniLM, and RoBERTa-large with random weights."""


def points(config: Config) -> list[Row]:
    """One a number of layers, with the trunk cache and without."""
    return [
        {"model": name, "layers": layers, "cached": cached}
        for name, model in config.models.items()
        for layers in model.layers
        for cached in CACHED
    ]


def measure(config: Config, point: Row) -> Row:
    """Milliseconds a step, once the first epoch is done."""
    found = task("banking77", records=config.models[point["model"]].records, made_up=config.made_up)
    if point["model"] != "MiniLM":
        found = _of_large(found)
    recipe = recipe_of(
        found,
        config.training
        | {"epochs": config.epochs, "seed": config.seed, "trunk_cache": "auto" if point["cached"] else False},
        slices=1,
        layers_per_slice=point["layers"],
        method="full",
    )
    watch = Stopwatch()
    with untrained(recipe, found) as run:
        run.train(progress=watch)
    (stage,) = watch.report(config.epochs)
    return {"ms_a_step": 1e3 * steady(stage) / stage["steps"]}


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """For every model: a line through the times without the cache, how well it fits, and what the cache gains."""
    found: Row = {}
    for name in config.models:
        times = {
            cached: {row["layers"]: row["ms_a_step"] for row in rows if (row["model"], row["cached"]) == (name, cached)}
            for cached in CACHED
        }
        layers, plain = np.array(list(times[False])), np.array(list(times[False].values()))
        slope, start = np.polyfit(layers, plain, 1)
        left = plain - (start + slope * layers)
        found[name] = {
            "ms_a_layer": float(slope),
            "ms_with_none": float(start),
            "largest_relative_residual": float(np.abs(left / plain).max()),
            "r_squared": float(1 - left @ left / ((plain - plain.mean()) @ (plain - plain.mean()))),
            "times_as_fast_with_cache": {
                str(count): times[False][count] / times[True][count] for count in times[False]
            },
        }
    return found


def _of_large(found: Task) -> Task:
    """The task with a RoBERTa-large of random weights, and the tokens of MiniLM."""
    folder = Path(os.environ.get("S3T_EXPERIMENTS", ".experiments")).resolve() / "roberta-large-random"
    if not folder.exists():
        config = RobertaConfig(
            vocab_size=30522,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            max_position_embeddings=514,
            type_vocab_size=1,
            pad_token_id=0,
        )
        part = folder.with_suffix(".part")
        torch.manual_seed(0)
        AutoModel.from_config(config).save_pretrained(part)
        for file in Path(model_folder(str(found.recipe["base_model"]), revision=None)).iterdir():
            if "token" in file.name or file.name == "vocab.txt":
                shutil.copy(file, part)
        part.replace(folder)
    return replace(found, recipe=found.recipe | {"base_model": str(folder)}, layers=24)
