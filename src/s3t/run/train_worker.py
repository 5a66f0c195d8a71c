"""A worker process, started by `run_in_pool` as `python -m s3t.run.train_worker`. It opens the run itself."""

from __future__ import annotations

from collections.abc import Sequence

from s3t.engine import EngineReport
from s3t.engine.worker import serve
from s3t.program import set_up_process
from s3t.progress import Progress
from s3t.run import Run


def train(arguments: Sequence[str], progress: Progress) -> EngineReport:
    """Train with others what is missing in the run whose folder is the only argument."""
    (folder,) = arguments
    with Run.open(folder) as run:
        report = run.train(progress=progress)
    return EngineReport(trained=report.stages, discarded=report.discarded)


if __name__ == "__main__":
    set_up_process()
    serve(train)
