"""`s3t status`."""

from __future__ import annotations

import typer

import s3t
from s3t.cli.display import print_status, print_unfinished
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.cli.remote import RunOrServerArgument, UrlOption, folder, server


def command(run: RunOrServerArgument = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show what is alive and what serves, what is not erased yet, and how many more deletions the run will take."""
    with failures_reported(as_json):
        if (client := server(run, url)) is not None:
            with client:
                status = client.status()
        else:
            with s3t.Run.open(folder(run)) as opened:
                status = opened.status(full=True)

        def render() -> None:
            print_status(status, run or url)
            print_unfinished(status, run or url)
            typer.echo(f"ledger: {status.ledger}")

        show(status.to_json(), as_json, render)
