"""`s3t clone`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import s3t
from s3t.cli.display import print_status
from s3t.cli.options import JsonOption
from s3t.cli.outcome import failures_reported, show


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The run's folder; with --adopt the copy's.")],
    copy: Annotated[Path | None, typer.Argument(metavar="[COPY]", help="A folder that does not exist.")] = None,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="RUN is a copy of a folder: make it a run of its own where it is.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy a run as a run of its own: its own id, ledger, lock and memory of deletions. It answers at once.

    A folder that was copied by other means answers only: a deletion in it would take the run out of service. --adopt
    makes it a clone. What was deleted from the run is deleted from the clone. Records, secret and artifacts are the
    run's; a ledger in PostgreSQL gets a schema of its own. Pending erasures come first. Afterwards the two are
    independent: delete records from both.
    """
    with failures_reported(as_json):
        if adopt == (copy is not None):
            raise s3t.InputError("the command", "name a run and a folder that does not exist, or a copy and --adopt")
        clone = run if copy is None else copy
        with s3t.Run.adopt(run) if copy is None else s3t.Run.clone(run, copy) as opened:
            status = opened.status()

        def render() -> None:
            typer.echo(f"{clone} is a run of its own now; delete records from both")
            print_status(status, clone)

        show(status.to_json(), as_json, render)
