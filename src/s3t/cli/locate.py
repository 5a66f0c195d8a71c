"""`s3t locate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import s3t
from s3t.cli.display import history, places_in_words
from s3t.cli.names import FileOption, names_in
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show
from s3t.cli.remote import RunOrServerArgument, UrlOption, folder, server
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.results.log import Location


def command(
    run: RunOrServerArgument = None,
    record: Annotated[
        list[str] | None,
        typer.Option(
            "--record", metavar="ID", help="A record to look up; may be repeated; - reads them from stdin, one a line."
        ),
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option(
            "--subject", metavar="ID", help="A person to look up; may be repeated; - reads them from stdin, one a line."
        ),
    ] = None,
    file: FileOption = None,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look up whether records and people are in the run: present and where, deleted and when, or never held.

    For the operator who has to answer "do you still have my data?", before a deletion and after it. Changes nothing.
    """
    with failures_reported(as_json):
        records, subjects = names_in(record, subject, file, verb="look up")
        locations = _locations(run, url, records, subjects)

        def render() -> None:
            for location in locations:
                typer.echo(f"{location.kind} {location.name}: {_in_words(location)}")

        show({"located": [location.to_json() for location in locations]}, as_json, render)


def _in_words(location: Location) -> str:
    if location.present:
        return f"present, {counted(location.records, 'row')} in {places_in_words(location.places)}"
    if location.deleted is None:
        if location.unreadable:
            return f"unknown to the ledger; {places_in_words(location.unreadable)} cannot be read"
        return "unknown: the run has never held it"
    return f"deleted by generation {location.deleted.generation}: {history([location.deleted])}"


def _locations(
    run: Path | None, url: str | None, records: Sequence[str], subjects: Sequence[str]
) -> Sequence[Location]:
    """Where a folder's run, or a server's, has names."""
    if (client := server(run, url)) is None:
        with s3t.Run.open(folder(run)) as opened:
            return opened.locate(records=records, subjects=subjects)
    with client:
        return client.locate(records=records, subjects=subjects)
