"""The work of a worker, in a process or an actor of its own: it opens the run, and trains what is missing."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence

from s3t.engine.pool import serve
from s3t.errors import WorkerError
from s3t.events import Progress
from s3t.program import set_up_process
from s3t.run import Run
from s3t.run.training import train_missing


def train(arguments: Sequence[str], progress: Progress) -> int:
    """Train with others what is missing; returns the number of stages that were thrown away.

    Arguments: the run's folder; time after which no stage is begun, in seconds since the epoch, inf without one. On
    other hosts, also the kind of device and, as JSON, the versions of libraries that all workers have, for bits hang on
    them.
    """
    folder, until, *alike = arguments
    with Run.open(folder) as run:
        if alike:
            _check_alike(run, *alike)
        return train_missing(run.parts, progress, until=float(until)).discarded


def _check_alike(run: Run, device: str, versions: str) -> None:
    from s3t.training import numerics

    wanted, quantized = json.loads(versions), run.recipe.training.quantization != "none"
    here = numerics.versions(quantized=quantized)
    problems = [
        f"{name} {here.get(name)}, not {version}" for name, version in wanted.items() if here.get(name) != version
    ]
    if (found := numerics.resolve_device(run.recipe.training.device).type) != device:
        problems.append(f"the device {found}, not {device}")
    if problems:
        raise WorkerError(
            f"the worker on {socket.gethostname()} has {'; '.join(problems)}: its stages would have other bits. Give "
            "all hosts the same environment, and GPUs by --gpus-per-worker or training.device"
        )


if __name__ == "__main__":
    set_up_process()
    serve(train)
