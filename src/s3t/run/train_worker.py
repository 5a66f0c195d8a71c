"""A worker process, started by `run_in_pool` as `python -m s3t.run.train_worker`. It opens the run itself."""

from __future__ import annotations

from collections.abc import Sequence

from s3t.engine.pool import serve
from s3t.events import Progress
from s3t.program import set_up_process
from s3t.run import Run
from s3t.run.training import train_missing


def train(arguments: Sequence[str], progress: Progress) -> int:
    """Train with others what is missing; returns the number of stages that were thrown away.

    Arguments: the run's folder; time after which no stage is begun, in seconds since the epoch, inf without one.
    """
    folder, until = arguments
    with Run.open(folder) as run:
        return train_missing(run.parts, progress, until=float(until)).discarded


if __name__ == "__main__":
    set_up_process()
    serve(train)
