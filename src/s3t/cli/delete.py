"""`s3t delete`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s3t.cli.deletions import depths_changed, duration, history, places_in_words, remedy
from s3t.cli.display import print_line, print_status
from s3t.cli.names import FileOption, names_in
from s3t.cli.options import JsonOption, MovedOption, RunArgument
from s3t.cli.outcome import FAILED, failures_reported, show
from s3t.progress_bar import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.errors import S3TError
    from s3t.run import Run
    from s3t.run.results import DeletionReport, Status, TrainReport

MANY_NAMES = 10_000
"""Size of the parts in which a request is accepted; longer requests show a progress bar."""

RecordOption = Annotated[
    list[str] | None,
    typer.Option(
        "--record", metavar="ID", help="A record to delete; may be repeated; - reads them from stdin, one a line."
    ),
]
SubjectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--subject",
        metavar="ID",
        help="A person all of whose records to delete; may be repeated; - reads them from stdin, one a line.",
    ),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--key",
        metavar="KEY",
        help="Idempotency key, such as a ticket's number: repeated with it, the request is carried out once.",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Delete nothing, and exit with 1, unless the run holds, or has held, every name."),
]


def command(
    run: RunArgument,
    record: RecordOption = None,
    subject: SubjectOption = None,
    file: FileOption = None,
    key: KeyOption = None,
    strict: StrictOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be lost, and delete nothing.")] = False,
    moved: MovedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete records exactly and at once; what is left goes on serving.

    When the command returns, the deletion is durable. Ids that are gone already or unknown are listed and change
    nothing; the exit status is still 0. The last line warns of unknown ones; --strict makes them an error.

    Whoever cannot know whether a request arrived, because the line was cut or the machine went down, makes it again
    with the same --key, and is told what it did:

        s3t delete RUN --subject c7 --key ticket-4711

    What is typed is seen by all users of the machine (ps), and kept in the shell's history. To keep names out of both:

        s3t delete RUN --subject - < names.txt
    """
    with failures_reported(as_json):
        import s3t

        records, subjects = names_in(record, subject, file, verb="delete")
        many = len(records) + len(subjects) > MANY_NAMES and not dry_run
        with s3t.Run.open(run, moved=moved) as opened:
            report = opened.delete(
                records=records,
                subjects=subjects,
                key=key,
                strict=strict,
                dry_run=dry_run,
                progress=ProgressBar() if many else None,
            )
            repaired, problem = (None, None) if dry_run else _repaired(opened, report.status)
        document = report.to_json() | {
            "repair": None if repaired is None else repaired.to_json(),
            "repair_failed": None if problem is None else str(problem),
        }
        show(document, as_json, lambda: _print(report, repaired, run))
        if problem is not None:
            typer.echo(f"s3t: the deletion is done; the repair failed: {problem}", err=True)
            raise typer.Exit(FAILED)


def _repaired(run: Run, status: Status) -> tuple[TrainReport | None, S3TError | None]:
    """Repairs if the recipe's policy asks for it; returns the report, and the error of a repair that failed."""
    from s3t.deletion.policy import repair_due
    from s3t.errors import S3TError

    try:
        if not repair_due(run.recipe.deletion.repair, status.inventory):
            return None, None
        return run.repair(progress=ProgressBar()), None
    except S3TError as error:
        return None, error


def _print(report: DeletionReport, repaired: TrainReport | None, run: Path) -> None:
    if report.repeated:
        print_line("key already used; nothing repeated. The original result:")
    would, records = report.dry_run and not report.repeated, counted(report.deleted, "record")
    print_line(f"{records} would be deleted" if would else f"{records} deleted")
    if report.already:
        print_line(f"gone already: {', '.join(report.already)}")
    if report.stages_lost:
        verb = "would have" if would else "has"
        print_line(
            f"{counted(report.stages_lost, 'stage')} {'would be ' if would else ''}lost, "
            f"which s3t repair {verb} to train again"
        )
    if changed := depths_changed(report.depths_before, report.status.depths):
        print_line(f"depth {'would fall' if would else 'falls'}: {', '.join(changed)}")
    _print_state(report, run)
    if repaired is not None:
        print_line(
            f"{counted(len(repaired.stages), 'stage')} repaired in {repaired.seconds:.1f} s, as deletion.repair says"
        )
    print_status(report.status if repaired is None else repaired.status, run, planned=report.dry_run)
    if report.unknown:
        print_line(unknown_names(report))


def unknown_names(report: DeletionReport) -> str:
    """A warning of names that took nothing: a typing error, or a record's id where a subject's is meant."""
    from s3t.errors import listed

    names, nothing = counted(len(report.unknown), "name"), "nothing would be" if report.dry_run else "NOTHING WAS"
    why = "The run has never held a record or subject of that id"
    if report.unreadable:
        why = f"The ledger does not know them, and {places_in_words(report.unreadable)} cannot be read: see s3t audit"
    return (
        f"WARNING: {names} UNKNOWN, {nothing} deleted for {'it' if len(report.unknown) == 1 else 'them'}: "
        f"{listed(report.unknown)}. {why}; --json lists all"
    )


def _print_state(report: DeletionReport, run: Path) -> None:
    """Prints the deletion's state and its times."""
    if report.dry_run and report.slices:
        within = report.erase_within
        when = f"within {duration(within)}" if within else "before the command returns"
        print_line(f"it would be accepted and effective at once, and erased {when}")
    if report.entries:
        print_line(f"{report.state}: {history(report.entries)}")
        left = [entry for entry in report.entries if entry.state == report.state and entry.erased_at is None]
        if left:
            print_line(remedy(left[-1], report.erase_within, run))
