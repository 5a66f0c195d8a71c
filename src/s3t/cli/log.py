"""`s3t log`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import s3t
from s3t.cli.display import moment, remedy
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.cli.remote import RunOrServerArgument, UrlOption, folder, server
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.results.log import LogEntry

STEPS = ("received", "accepted", "effective", "erased")
WIDTH = 120
"""Columns that four times side by side need."""


def command(run: RunOrServerArgument = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show every deletion: how many records it took, and when it was received, accepted, effective and erased.

    The log holds no names. To find the deletion of a record, give its name to s3t locate.
    """
    with failures_reported(as_json):
        entries = _entries(run, url)

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
                    typer.echo(f"generation {entry.generation}: {remedy(entry, None, run or url)}")

        show({"log": [entry.to_json() for entry in entries]}, as_json, render)


def _entries(run: Path | None, url: str | None) -> Sequence[LogEntry]:
    """The log of a folder's run, or of a server's."""
    if (client := server(run, url)) is None:
        with s3t.Run.open(folder(run)) as opened:
            return opened.log()
    with client:
        return client.log()
