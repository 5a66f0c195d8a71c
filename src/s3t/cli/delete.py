"""`s3t delete`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s3t.cli.deletions import depths_changed, duration, history, remedy
from s3t.cli.display import counted, print_line, print_status
from s3t.cli.names import FileOption, names_in
from s3t.cli.options import JsonOption, RunArgument
from s3t.cli.outcome import failures_reported, show
from s3t.progress_bar import ProgressBar

if TYPE_CHECKING:
    from s3t.run.results import DeletionReport

MANY_NAMES = 10_000
"""Above, a request is accepted in parts, and a bar has something to show."""


def command(
    run: RunArgument,
    record: Annotated[
        list[str] | None, typer.Option("--record", metavar="ID", help="A record to delete; may be repeated.")
    ] = None,
    subject: Annotated[
        list[str] | None,
        typer.Option("--subject", metavar="ID", help="A person all of whose records to delete; may be repeated."),
    ] = None,
    file: FileOption = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            metavar="KEY",
            help="Your name for this request, such as a ticket's number: asked again with it, nothing is done twice.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be lost, and delete nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete records exactly and at once; what is left goes on serving.

    When the command returns, the deletion is durable. Ids that are gone already or unknown are listed and change
    nothing; the exit status is still 0.

    Whoever cannot know whether a request arrived, because the line was cut or the machine went down, makes it again
    with the same --key, and is told what it did:

        s3t delete RUN --subject c7 --key ticket-4711
    """
    with failures_reported(as_json):
        import s3t

        records, subjects = names_in(record, subject, file, verb="delete")
        many = len(records) + len(subjects) > MANY_NAMES and not dry_run
        with s3t.Run.open(run) as opened:
            report = opened.delete(
                records=records,
                subjects=subjects,
                key=key,
                dry_run=dry_run,
                progress=ProgressBar() if many else None,
            )
        show(report.to_json(), as_json, lambda: _print(report, run))


def _print(report: DeletionReport, run: Path) -> None:
    if report.repeated:
        print_line("made before with this key; what was done then is not done again")
    would, records = report.dry_run and not report.repeated, counted(report.deleted, "record")
    print_line(f"{records} would be deleted" if would else f"{records} deleted")
    for name, ids in (("gone already", report.already), ("unknown", report.unknown)):
        if ids:
            print_line(f"{name}: {', '.join(ids)}")
    if report.stages_lost:
        verb = "would have" if would else "has"
        print_line(
            f"{counted(report.stages_lost, 'stage')} {'would be ' if would else ''}lost, "
            f"which s3t repair {verb} to train again"
        )
    if changed := depths_changed(report.depths_before, report.status.depths):
        print_line(f"depth {'would fall' if would else 'falls'}: {', '.join(changed)}")
    _print_state(report, run)
    print_status(report.status, run, planned=report.dry_run)


def _print_state(report: DeletionReport, run: Path) -> None:
    """How far the deletion has come, and when."""
    if report.dry_run and report.slices:
        within = report.erase_within
        when = f"within {duration(within)}" if within else "before the command returns"
        print_line(f"it would be accepted and effective at once, and erased {when}")
    if report.entries:
        print_line(f"{report.state}: {history(report.entries)}")
        left = [entry for entry in report.entries if entry.state == report.state and entry.erased_at is None]
        if left:
            print_line(remedy(left[-1], report.erase_within, run))
