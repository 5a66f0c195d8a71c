"""A worker process, started by `run_in_pool` as `python -m s3t.run.train_worker`. It opens the run itself."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from s3t.engine import EngineReport
from s3t.engine.pool import serve
from s3t.events import Progress
from s3t.program import set_up_process
from s3t.run import Run


def train(arguments: Sequence[str], progress: Progress) -> EngineReport:
    """Train with others what is missing.

    Arguments: the run's folder; time after which no stage is begun, in seconds since the epoch, inf without one.
    """
    folder, until = arguments
    left = (float(until) - time.time()) / 3600
    with Run.open(folder) as run:
        report = run.repair(progress=progress, hours=max(left, _NO_TIME) if left < math.inf else None)
    return EngineReport(trained=report.stages, discarded=report.discarded)


_NO_TIME = 1e-9
"""Hours of a worker that began too late; it trains nothing."""

if __name__ == "__main__":
    set_up_process()
    serve(train)
