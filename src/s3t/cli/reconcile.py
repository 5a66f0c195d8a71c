"""`s3t reconcile`."""

from __future__ import annotations

import typer

import s3t
from s3t.cli.display import print_status
from s3t.cli.options import JsonOption, MovedOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.wording import counted


def command(run: RunArgument, moved: MovedOption = False, as_json: JsonOption = False) -> None:
    """Delete again what was deleted after a backup was made that is now put back.

    A run that is an older state of itself neither serves nor trains: every command refuses it and names this one. What
    was deleted later is known from a memory outside of the run's folder (S3T_STATE), from the ledger, or from the
    slices, whichever is newest. A slice's file that no deletion explains is refused, and nothing is changed. Does no
    harm to a run that is as it should be. After `s3t destroy-key`, files of slices that are too old are removed.
    """
    with failures_reported(as_json):
        done = s3t.Run.reconcile(run, moved=moved)
        with s3t.Run.open(run) as opened:
            status = opened.status()

        def render() -> None:
            mended, lost = counted(len(done.slices), "slice"), counted(done.stages_lost, "stage")
            if done.rows:
                typer.echo(f"{counted(done.rows, 'row')} of the ledger mended")
            typer.echo(f"{counted(done.records, 'record')} deleted again, {mended} brought up to date, {lost} lost")
            print_status(status, run)

        show(done.to_json(), as_json, render)
