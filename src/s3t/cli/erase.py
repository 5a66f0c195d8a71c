"""`s3t erase`."""

from __future__ import annotations

from typing import Annotated

import typer

import s3t
from s3t.cli.display import print_unfinished
from s3t.cli.options import JsonOption, MovedOption, RunArgument
from s3t.cli.outcome import failures_reported, show


def command(
    run: RunArgument,
    clones_are_gone: Annotated[
        bool,
        typer.Option(
            "--clones-are-gone",
            help="Clones that other hosts were making are gone with these hosts. Else a deletion is not erased before "
            "`s3t erase` has run there.",
        ),
    ] = False,
    moved: MovedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Erase now what is deleted and still waits in its slice's file (deletion.erase_within), and say what is left.

    Nothing uses such records any more; this takes away their bytes. For cron: run it more often than
    deletion.erase_within. It does no harm where nothing waits. Exit status 1 if disk or database refuses, or if a
    slice's file is not the ledger's and may hold deleted records: then run `s3t reconcile`.
    """
    with failures_reported(as_json):
        with s3t.Run.open(run, moved=moved) as opened:
            status = opened.erase(clones_are_gone=clones_are_gone)

        def render() -> None:
            if not status.unfinished:
                typer.echo("every deletion is erased; nothing is left")
            print_unfinished(status, run)

        show(status.to_json(), as_json, render)
