"""Trainings in processes of their own, which begin when they are told to.

    python -m benchmarks.trainer JOB...

For one job after another, the process makes a run, prints a line, and trains when a line comes in; then it prints the
result as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias

from s3t.events import Event, WorkStep
from s3t.program import set_up_process

Trainer: TypeAlias = "subprocess.Popen[str]"
READY = "ready"
LEFT_TO_S3T = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
"""Variables of the environment that a trainer is started without."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is trained: one stage of LoRA at all linear modules of a model's top layers.

    Attributes:
        model: as `base_model` of a recipe.
        layers: of the stage's block.
        threads: as `training.threads` of a recipe; so is the precision.
        records: made-up texts, a third each of three labels.
        words: of a text in the mean; from half to one and a half times as many.
        epochs: at least 2.
        seed: of texts and training.
    """

    model: str
    layers: int = 1
    threads: int | Literal["auto"] = "auto"
    precision: str = "auto"
    records: int = 128
    words: int = 20
    epochs: int = 2
    seed: int = 0


def at_once(jobs: Sequence[Job], *, prefix: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The results of jobs that train at the same time, each in a process of its own.

    Args:
        jobs: what is trained.
        prefix: program and arguments that start the given command, such as taskset -c 0.

    Raises:
        RuntimeError: a process failed; what it wrote on stderr has been shown.
    """
    with ExitStack() as started:
        trainers = [started.enter_context(_started([job], prefix)) for job in jobs]
        for trainer in trainers:
            _line(trainer)
        for trainer in trainers:
            _begin(trainer)
        return [json.loads(_line(trainer)) for trainer in trainers]


def one_after_another(jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
    """The results of jobs that train in turn, in one process.

    Raises:
        RuntimeError: the process failed; what it wrote on stderr has been shown.
    """
    with _started(jobs) as trainer:
        for _ in jobs:
            _line(trainer)
            _begin(trainer)
            yield json.loads(_line(trainer))


@contextmanager
def _started(jobs: Sequence[Job], prefix: Sequence[str] = ()) -> Iterator[Trainer]:
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_TO_S3T}
    told = [json.dumps(asdict(job)) for job in jobs]
    command = [*prefix, sys.executable, "-m", "benchmarks.trainer", *told]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as trainer:
        try:
            yield trainer
        except BaseException:
            trainer.kill()
            raise


def _begin(trainer: Trainer) -> None:
    stream: Any = trainer.stdin
    stream.write("\n")
    stream.flush()


def _line(trainer: Trainer) -> str:
    stream: Any = trainer.stdout
    line: str = stream.readline()
    if not line:
        raise RuntimeError("a trainer ended before its time; see its messages above")
    return line


class Clocks:
    """Hears of steps, and notes wall, processor and main thread's processor seconds."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float, float]] = []

    def __call__(self, event: Event) -> None:
        """Note a step; one of no records is a batch of the trunk cache that is filled."""
        if isinstance(event, WorkStep) and event.count:
            self.steps.append(now())


def now() -> tuple[float, float, float]:
    """Seconds by the clock, of the processor by this process, and by this thread."""
    return time.perf_counter(), time.process_time(), time.thread_time()


def train(job: Job, folder: Path) -> Mapping[str, Any]:
    """Make a run; once a line comes in, train it. Seconds of the whole, and of a step after the first epoch."""
    import numpy as np

    import s3t
    from testing import tiny

    recipe = tiny.recipe(
        Path(job.model),
        base_model=job.model,
        partition={"shards": 1, "slices": 1},
        sequences={"budget": 1},
        adapter={"rank": 16, "alpha": 32, "target_modules": "all-linear", "layers_per_slice": job.layers},
        text={"max_length": 128},
        training={"epochs": job.epochs, "batch_size": 32, "learning_rate": 1e-3, "seed": job.seed}
        | {"precision": job.precision, "threads": job.threads},
    )
    with s3t.Run.create(folder / "run", recipe=recipe, data=_table(job)) as run:
        print(READY, flush=True)
        sys.stdin.readline()
        clocks, began = Clocks(), now()
        run.train(progress=clocks)
        whole = np.subtract(now(), began)
        training = run.recipe.training
    later = clocks.steps[len(clocks.steps) // job.epochs - 1 :]
    steps = np.array([np.subtract(end, begin) for begin, end in pairwise(later)])
    return {
        "threads": training.threads,
        "precision": training.precision,
        "wall": whole[0],
        "cpu": whole[1],
        "step": {"least_wall": steps[:, 0].min(), "cpu": steps[:, 1].mean(), "main_cpu": steps[:, 2].mean()},
        "steps": len(steps),
    }


def _table(job: Job) -> Any:
    import numpy as np
    import pandas as pd

    from testing import tiny

    random = np.random.default_rng(job.seed)
    lengths = random.integers(job.words // 2, 3 * job.words // 2 + 1, job.records)
    texts = [" ".join(random.choice(tiny.WORDS, length)) for length in lengths]
    numbers = range(job.records)
    return pd.DataFrame(
        {"id": [f"r{each}" for each in numbers], "text": texts, "label": ["abc"[n % 3] for n in numbers]}
    )


def main() -> None:
    set_up_process()  # as `s3t train` does
    for told in sys.argv[1:]:
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
            print(json.dumps(train(Job(**json.loads(told)), Path(folder))), flush=True)


if __name__ == "__main__":
    main()
