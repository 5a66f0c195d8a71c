"""`s3t delete`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from s3t.cli.display import counted, print_line, print_status
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show


def command(
    run: RunArgument,
    record: Annotated[
        list[str] | None, typer.Option("--record", metavar="ID", help="A record to delete; may be repeated.")
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option("--subject", metavar="ID", help="A person all of whose records to delete; may be repeated."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A .csv, .jsonl or .parquet with a column `record` or `subject`."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be lost, and change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete records exactly and at once; what is left goes on serving.

    When the command returns, the deletion is durable. Ids that are gone already or unknown are listed and change
    nothing; the exit status is still 0.
    """
    with failures_reported(as_json):
        import s3t
        from s3t.records import read_requests

        listed = ((), ()) if file is None else read_requests(file)
        records, subjects = [*(record or ()), *listed[0]], [*(subject or ()), *listed[1]]
        if not records and not subjects and file is None:
            raise s3t.InputError("the command", ["name what to delete: --record ID, --subject ID or --file FILE"])
        with s3t.Run.open(run) as opened:
            report = opened.delete(records=records, subjects=subjects, dry_run=dry_run)

        def render() -> None:
            would = "would be " if report.dry_run else ""
            lost = counted(report.stages_lost, "stage")
            print_line(f"{counted(report.deleted, 'record')} {would}deleted, {lost} {would}lost")
            for name, ids in (("gone already", report.already), ("unknown", report.unknown)):
                if ids:
                    print_line(f"{name}: {', '.join(ids)}")
            print_status(report.status, run, planned=report.dry_run)

        show(report.to_json(), as_json, render)
