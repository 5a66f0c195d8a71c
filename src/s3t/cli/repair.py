"""`s3t repair`."""

from __future__ import annotations

from typing import Annotated

import typer

import s3t
from s3t.cli.display import print_training
from s3t.cli.options import JsonOption, MovedOption, RunArgument, WorkersOption, number_of
from s3t.cli.outcome import failures_reported, show
from s3t.progress import ProgressBar

HoursOption = Annotated[
    float | None,
    typer.Option("--hours", help="Begin no stage after so many hours. What is worth most for its time comes first."),
]


def command(
    run: RunArgument,
    workers: WorkersOption = "1",
    hours: HoursOption = None,
    moved: MovedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train what deletions cost: only the stages that are missing, each from its surviving parent.

    Afterwards the artifacts are, byte for byte, those of a run that never saw the deleted records.
    """
    with failures_reported(as_json):
        with s3t.Run.open(run, moved=moved) as opened:
            done = opened.repair(workers=number_of(workers), hours=hours, progress=ProgressBar())
            status = opened.status()
        show(done.to_json(), as_json, lambda: print_training(done, status, run))
