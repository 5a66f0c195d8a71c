"""`s3t extend`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

import s3t
from s3t.cli.display import print_training
from s3t.cli.options import JsonOption, MovedOption, RunArgument, WorkersOption, number_of
from s3t.cli.outcome import failures_reported, show
from s3t.errors import InputError
from s3t.progress_bar import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.run.extension import Extension

LEAST_DEPTH = 0.1
"""Mean depth, in slices, below which a shard is as good as dead with any orders."""


def command(
    run: RunArgument,
    budget: Annotated[
        int,
        typer.Option(
            "--budget", metavar="B", help="Orders a shard, more than it has now, up to L!.", show_default=False
        ),
    ],
    workers: WorkersOption = "1",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show costs and gain, and change nothing.")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Add orders that make no shard survive longer, too.")
    ] = False,
    moved: MovedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Add orders to every shard, so that it survives more deletions, and train the stages that are missing.

    The old orders stay, and stay first. If the training is killed, s3t train goes on where it was. Orders that would
    add no survival are refused unless --anyway is given, or the recipe uses them (prediction.ensemble: sequences,
    prediction.select: validation).
    """
    with failures_reported(as_json):
        with s3t.Run.open(run, moved=moved) as opened:
            extension = opened.extension(budget=budget, progress=ProgressBar())
            if dry_run:
                show(extension.to_json(), as_json, lambda: typer.echo(_told(extension)))
                return
            if extension.buys_nothing and not anyway:
                remedy = "give --anyway to train them all the same, or deepen shards with s3t repair"
                raise InputError("the budget", f"{_told(extension)}; {remedy}")
            typer.echo(_told(extension), err=True)
            report = opened.extend(budget=budget, workers=number_of(workers), progress=ProgressBar())

        def render() -> None:
            typer.echo(f"{counted(budget, 'order')} a shard now")
            print_training(report, run)

        show({"budget": budget, "gain": extension.gain.to_json(), **report.to_json()}, as_json, render)


def _told(extension: Extension) -> str:
    """Costs and gain of an extension, in one line."""
    gain = extension.gain
    lost = f" and {extension.lost} that are missing already" if extension.lost else ""
    changes = ", ".join(
        f"{before:.2f} -> {after:.2f} after {count}"
        for count, before, after in zip(gain.deletions, gain.before, gain.after, strict=True)
        if after >= LEAST_DEPTH
    )
    nothing = ": these orders add no survival" if gain.is_none else ""
    return (
        f"{counted(extension.stages, 'stage')} to train for the new orders{lost}; expected depth of a shard by "
        f"deletions in it: {changes}{nothing}"
    )
