"""`s3t audit`."""

from __future__ import annotations

from typing import Annotated

import typer

import s3t
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import FAILED, failures_reported, show
from s3t.progress import ProgressBar
from s3t.wording import counted


def command(
    run: RunArgument,
    replay: Annotated[
        int, typer.Option("--replay", metavar="N", min=0, help="Train N live stages again and compare their bytes.")
    ] = 0,
    seed: Annotated[
        int | None, typer.Option(help="Seed that chooses the stages to replay. By default the choice is unpredictable.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check that all that may serve is what today's slices ask for: keys, bytes, parents; then replay N stages.

    It also checks the base model's files, every row and page of the ledger, and every record of the slices. It checks
    the memory of deletions and the public records, and that no artifact is unnamed. SQLite's integrity_check checks
    pages, or PostgreSQL's extension amcheck where the role may use it. Exit status 1 if anything is wrong.
    """
    with failures_reported(as_json):
        with s3t.Run.open(run) as opened:
            report = opened.audit(replay=replay, seed=seed, progress=ProgressBar())

        def render() -> None:
            verdict = "no mismatch" if report.warnings else "nothing is wrong"
            verdict = verdict if report.ok else f"{len(report.mismatches)} wrong"
            typer.echo(f"{counted(report.checked, 'stage')} checked, {len(report.replayed)} replayed: {verdict}")
            for mismatch in report.mismatches:
                typer.echo(", ".join(f"{name} {value}" for name, value in mismatch.items()))
            for warning in report.warnings:
                typer.echo(f"warning: {warning}")

        show(report.to_json(), as_json, render)
        if not report.ok:
            raise typer.Exit(FAILED)
