"""`s3t status`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

import s3t
from s3t.cli.deletion_words import print_exports, print_unfinished
from s3t.cli.display import print_status, print_status_document
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.cli.remote import RunOrServerArgument, UrlOption, folder, server

if TYPE_CHECKING:
    from s3t.run.results import Status


def command(run: RunOrServerArgument = None, url: UrlOption = None, as_json: JsonOption = False) -> None:
    """Show what is alive and what serves, what is not erased yet, and how many more deletions the run will take."""
    with failures_reported(as_json):
        if (client := server(run, url)) is not None:
            with client:
                document = client.status()
            show(document, as_json, lambda: print_status_document(document))
            return
        path = folder(run)
        with s3t.Run.open(path) as opened:
            status = opened.status()
        show(status.to_json(), as_json, lambda: _print(status, path))


def _print(status: Status, run: Path) -> None:
    print_status(status, run)
    print_unfinished(status, run)
    print_exports(status, run)
    typer.echo(f"ledger: {status.ledger}")
