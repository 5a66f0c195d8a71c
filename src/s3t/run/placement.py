"""Number of worker processes that train a run, and the device of each.

A stage's bits depend on the number of threads, so each worker takes as many as the recipe says, however many there are.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Literal, TypeAlias

from s3t.core import Stage
from s3t.engine import Placement, cores_worth, usable_cores
from s3t.errors import InputError
from s3t.recipe import TrainingSettings

WorkerCount: TypeAlias = int | Literal["auto"]
"""Number of workers; auto: one a GPU, or as many as the cores have room for."""
MOST_WORKERS = 10_000


def check_workers(workers: WorkerCount) -> None:
    whole = isinstance(workers, int) and not isinstance(workers, bool)
    if workers != "auto" and not (whole and 1 <= workers <= MOST_WORKERS):
        shown = repr(workers)[:40]
        raise InputError("workers", f"{shown} is neither a whole number from 1 to {MOST_WORKERS:,} nor auto")


def placements(workers: WorkerCount, missing: Collection[Stage], training: TrainingSettings) -> list[Placement]:
    """Placements of the workers, at most as many as can be busy; one or none: this process trains alone."""
    most = trainable_at_once(missing)
    if workers == 1 or most <= 1:
        return []
    devices = _cuda_devices(training)
    if devices:
        count = min(most, len(devices) if workers == "auto" else workers)
        return [
            Placement(environment={"CUDA_VISIBLE_DEVICES": devices[number % len(devices)]}) for number in range(count)
        ]
    threads = 1 if training.threads == "auto" else training.threads
    count = min(most, max(1, cores_worth() // threads) if workers == "auto" else workers)
    cores = usable_cores()
    if not hasattr(os, "sched_setaffinity") or count * threads > len(cores):
        return [Placement()] * count
    return [Placement(cores=cores[number * threads : (number + 1) * threads]) for number in range(count)]


def trainable_at_once(missing: Collection[Stage]) -> int:
    """The most stages that can be trained at one time, each after its parent: those that no other one follows.

    >>> trainable_at_once([Stage(0, (0,)), Stage(0, (0, 1)), Stage(0, (0, 2)), Stage(1, (2, 1))])
    3
    """
    return len(set(missing).difference(parent for stage in missing for parent in stage.parents))


def _cuda_devices(training: TrainingSettings) -> list[str]:
    """The GPUs to train on, as CUDA_VISIBLE_DEVICES names them; none where a CPU trains."""
    if training.device == "cpu":
        return []
    import torch  # here: where the recipe names a CPU, nothing but workers needs it

    from s3t.training.numerics import resolve_device

    if resolve_device(training.device).type != "cuda":
        return []
    count = torch.cuda.device_count()
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[:count] if given else [str(number) for number in range(count)]
