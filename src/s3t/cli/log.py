"""`s3t log`."""

from __future__ import annotations

import typer

import s3t
from s3t.cli.deletions import moment, remedy
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.wording import counted

STEPS = ("received", "accepted", "effective", "erased")
WIDTH = 120
"""Columns that four times side by side need."""


def command(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show every deletion: how many records it took, and when it was received, accepted, effective and erased.

    The log holds no names. To find the deletion of a record, give its name to s3t locate.
    """
    with failures_reported(as_json):
        with s3t.Run.open(run) as opened:
            entries = opened.log()

        def render() -> None:
            from rich.console import Console
            from rich.table import Table

            creation, *deletions = entries
            title = (
                f"{counted(len(deletions), 'deletion')} since {moment(creation.received_at)} UTC, when the run was made"
            )
            table = Table(title=title)
            for name in ("generation", "records", *(f"{step} (UTC)" for step in STEPS)):
                table.add_column(name)
            for entry in deletions:
                times = (getattr(entry, f"{step}_at") for step in STEPS)
                table.add_row(str(entry.generation), str(entry.records), *map(moment, times))
            console = Console()
            console.width = max(console.width, WIDTH)
            console.print(table)
            for entry in deletions:
                if entry.to_withdraw:
                    typer.echo(f"generation {entry.generation}: {remedy(entry, 0.0, run)}")

        show({"log": [entry.to_json() for entry in entries]}, as_json, render)
