"""`s3t extend`."""

from __future__ import annotations

from typing import Annotated

import typer

from s3t.cli.display import counted, print_line, print_status
from s3t.cli.options import JsonOption, RunArgument, WorkersOption, number_of
from s3t.cli.outcome import failures_reported, show
from s3t.progress_bar import ProgressBar


def command(
    run: RunArgument,
    budget: Annotated[
        int,
        typer.Option("--budget", metavar="B", help="Orders a shard, more than it has now.", show_default=False),
    ],
    workers: WorkersOption = "1",
    as_json: JsonOption = False,
) -> None:
    """Add orders to every shard, so that it survives more deletions, and train the stages that are missing.

    The old orders stay. If the training is killed, s3t train goes on where it was.
    """
    with failures_reported(as_json):
        import s3t

        with s3t.Run.open(run) as opened:
            report = opened.extend(budget=budget, workers=number_of(workers), progress=ProgressBar())

        def render() -> None:
            trained = counted(len(report.stages), "stage")
            print_line(f"{counted(budget, 'order')} a shard now; {trained} trained in {report.seconds:.1f} s")
            print_status(report.status, run)

        show({"budget": budget, **report.to_json()}, as_json, render)
