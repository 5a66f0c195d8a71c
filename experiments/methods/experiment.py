"""One method: trained, tried, and deleted from until nothing answers."""

from __future__ import annotations

import random
import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

import s3t
from experiments.runs import remembering_in
from experiments.settings import Settings
from experiments.tasks import Task


class Config(Settings):
    """What the methods have in common, and what differs."""

    shards: int = Field(ge=1)
    """m."""
    slices: int = Field(ge=1)
    """L."""
    budget: int = Field(ge=1)
    """B, of s3t."""
    rounds: int = Field(ge=1)
    """Random orders of deletion."""
    training: dict[str, Any]
    """Of the recipe."""
    adapter: dict[str, Any]
    """Of the recipe, the same for every method."""
    layers_per_slice: int = Field(ge=1)
    """Of a block of s3t; the other methods adapt as many layers as all its blocks have together."""
    methods: dict[str, dict[str, Any]]
    """What differs of the recipe, by the name in the table."""


def recipe_of(config: Config, name: str, task: Task) -> dict[str, Any]:
    """A method's recipe."""
    own: Mapping[str, Any] = config.methods[name]
    blockwise = "method" not in own
    size = {"layers_per_slice": config.layers_per_slice} if blockwise else {}
    if not blockwise and "trainable" not in own["method"]:
        size = {"layers": config.layers_per_slice * config.slices}
    partition = {"shards": config.shards, "slices": config.slices, "salt": "methods"}
    return {
        **task.recipe,
        "partition": partition | own.get("partition", {}),
        "adapter": config.adapter | size,
        "training": config.training | {"seed": config.seed} | own.get("training", {}),
        "deletion": {"repair": "manual"},  # what it costs is measured apart
        **({"sequences": {"budget": config.budget}} if blockwise else {"method": own["method"]}),
    }


def measure(config: Config, name: str, task: Task, folder: Path) -> dict[str, Any]:
    """One row of the table.

    Args:
        config: of the experiment.
        name: of the method.
        task: its records.
        folder: for the runs; empty.
    """
    recipe = recipe_of(config, name, task)
    with (
        remembering_in(folder),
        s3t.Run.create(folder / "run", recipe=recipe, data=task.train, public_data=True) as run,
    ):
        seconds = run.train(progress=s3t.ProgressBar()).seconds
        accuracy = run.evaluate(task.test, per_depth=False, progress=s3t.ProgressBar()).accuracy
        status = run.status(full=True)
        expected = None if status.forecast is None else status.forecast.all_shards_die
    deaths, times = [], []
    for number in range(config.rounds):
        order = list(task.train.id)
        random.Random(config.seed * 1_000_003 + number).shuffle(order)
        deleted, spent = delete_until_dead(folder / "run", folder / f"copy-{number}", order)
        deaths.append(deleted)
        times += spent
        shutil.rmtree(folder / f"copy-{number}")
    return {
        "method": name,
        "accuracy": accuracy,
        "train_seconds": round(seconds, 1),
        "stored_bytes": status.stored_bytes,
        "stages": status.alive,
        "deletions_until_dead": deaths,
        "deletions_until_dead_mean": statistics.fmean(deaths),
        "deletions_until_dead_expected": expected,
        "deletion_ms": round(1e3 * statistics.median(times), 2),
    }


def delete_until_dead(run: Path, copy: Path, order: list[str]) -> tuple[int, list[float]]:
    """Delete from a copy of a run, record after record, until no shard answers; how many that took, and each's seconds.

    Nothing is repaired. A run remembers outside of its folder what was deleted, so each copy has a memory of its own.
    """
    copy.mkdir()
    spent: list[float] = []
    with remembering_in(copy), s3t.Run.clone(run, copy / "run") as opened:
        for record in order:
            started = time.perf_counter()
            report = opened.delete(records=[record])
            spent.append(time.perf_counter() - started)
            if not any(report.depths_after):
                break
    return len(spent), spent
