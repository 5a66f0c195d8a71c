"""`s3t delete`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import s3t
from s3t.cli.deletion_words import depths_changed, history, places_in_words, remedy, withdrawal
from s3t.cli.display import print_status
from s3t.cli.names import FileOption, names_in
from s3t.cli.options import JsonOption, MovedOption
from s3t.cli.outcome import FAILED, failures_reported, show
from s3t.cli.remote import RunOrServerArgument, UrlOption, folder, server
from s3t.errors import listed
from s3t.progress_bar import ProgressBar
from s3t.wording import counted, duration

if TYPE_CHECKING:
    from s3t.run.results import DeletionReport

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
        help="Idempotency key, such as a ticket's number: repeated with it, the request is carried out once. With "
        "other names it is refused. A key under which nothing was deleted stays free.",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option("--strict", help="Delete nothing, and exit with 1, unless the run holds, or has held, every name."),
]


def command(
    run: RunOrServerArgument = None,
    record: RecordOption = None,
    subject: SubjectOption = None,
    file: FileOption = None,
    key: KeyOption = None,
    strict: StrictOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be lost, and delete nothing.")] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="At a terminal: do not ask, even if no shard would answer afterwards.")
    ] = False,
    moved: MovedOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete records exactly and at once; what is left goes on serving.

    When the command returns, the deletion is durable. Ids that are gone already or unknown are listed and change
    nothing; the exit status is still 0. The last line warns of unknown ones; --strict makes them an error.

    If it is unknown whether a request arrived, because a connection broke or a machine stopped, repeat it with the same
    --key. Nothing is done twice, and the output is that of the first request:

        s3t delete RUN --subject c7 --key ticket-4711

    What is typed is seen by all users of the machine (ps), and kept in the shell's history. To keep names out of both:

        s3t delete RUN --subject - < names.txt
    """
    with failures_reported(as_json):
        records, subjects = names_in(record, subject, file, verb="delete")
        if (client := server(run, url, local=["--moved"] if moved else [])) is not None:
            with client:
                found = client.delete(records=records, subjects=subjects, key=key, strict=strict, dry_run=dry_run)
            show(found, as_json, lambda: _print_document(found))
            if found["held"] is not None:
                raise typer.Exit(FAILED)
            return
        path = folder(run)
        asked: dict[str, Any] = {"records": records, "subjects": subjects, "key": key, "strict": strict}
        told = []

        def tell(report: DeletionReport) -> None:
            if as_json:
                typer.echo(f"s3t: {counted(report.deleted, 'record')} deleted, durably; repairing now", err=True)
            else:
                show({}, False, lambda: _print(report, path))
            told.append(report)

        with s3t.Run.open(path, moved=moved) as opened:
            if not dry_run and not yes and sys.stdin.isatty() and sys.stderr.isatty():
                _ask(opened.delete(**asked, dry_run=True))
            report = opened.delete(**asked, dry_run=dry_run, progress=ProgressBar(), before_repair=tell)
        show(report.to_json(), as_json, lambda: _print_repair(report, path) if told else _print(report, path))
        if as_json:
            for warning in report.warnings:
                typer.echo(f"s3t: warning: {warning}", err=True)
        if report.repair_error is not None:
            typer.echo(f"s3t: the deletion is done; the repair failed: {report.repair_error}", err=True)
            raise typer.Exit(FAILED)


def _ask(planned: DeletionReport) -> None:
    """Ask a person before nothing answers any more. A script is not asked, lest a person's request waits for it."""
    if not any(planned.depths_before) or any(planned.status.depths):
        return
    for warning in planned.warnings:
        typer.echo(f"s3t: {warning}", err=True)
    if not typer.confirm(f"Delete {counted(planned.deleted, 'record')}?", err=True):
        typer.echo("nothing was deleted", err=True)
        raise typer.Exit(FAILED)


def _print(report: DeletionReport, run: Path) -> None:
    if report.repeated:
        typer.echo("key already used; nothing repeated. The original result:")
    would, records = report.dry_run and not report.repeated, counted(report.deleted, "record")
    typer.echo(f"{records} would be deleted" if would else f"{records} deleted")
    if report.already:
        typer.echo(f"gone already: {', '.join(report.already)}")
    if report.stages_lost:
        verb = "would have" if would else "has"
        typer.echo(
            f"{counted(report.stages_lost, 'stage')} {'would be ' if would else ''}lost, "
            f"which s3t repair {verb} to train again"
        )
    if changed := depths_changed(report.depths_before, report.status.depths):
        typer.echo(f"depth {'would fall' if would else 'falls'}: {', '.join(changed)}")
    _print_state(report, run)
    print_status(report.status, run, planned=report.dry_run)
    if report.unknown:
        typer.echo(unknown_names(report))


def _print_repair(report: DeletionReport, run: Path) -> None:
    if (repair := report.repair) is not None:
        typer.echo(
            f"{counted(len(repair.stages), 'stage')} repaired in {repair.seconds:.1f} s, as deletion.repair says"
        )
        print_status(repair.status, run)


def _print_document(found: dict[str, Any]) -> None:
    """A deletion that a server has told of."""
    if found["held"] is not None:
        typer.echo(HELD_STATES[found["state"]].format(id=found["held"]))
        return
    if found["repeated"]:
        typer.echo("key already used; nothing repeated. The original result:")
    records = counted(found["deleted"], "record")
    typer.echo(f"{records} would be deleted" if found["dry_run"] and not found["repeated"] else f"{records} deleted")
    if found["already"]:
        typer.echo(f"gone already: {', '.join(found['already'])}")
    if (plan := found["plan"]) is not None:
        typer.echo(f"stages lost: {plan['stages_lost']}")
        if changed := depths_changed(plan["depths_before"], plan["depths_after"]):
            typer.echo(f"depth: {', '.join(changed)}")
    if found["state"] is not None:
        typer.echo(f"{found['state']}: deletion {found['id']}")
    for warning in found["warnings"]:
        typer.echo(f"warning: {warning}")
    if found["unknown"]:
        typer.echo(f"WARNING: {counted(len(found['unknown']), 'name')} UNKNOWN: {listed(found['unknown'])}")


HELD_STATES = {
    "held": "held for approval, nothing deleted yet: {id}; an operator decides with s3t deletions",
    "approved": "approved, and about to be deleted: {id}",
    "refused": "refused by an operator, nothing deleted: {id}; s3t deletions held has the reason",
}
"""States of a deletion that a server has held, in words."""


def unknown_names(report: DeletionReport) -> str:
    """A warning of names that took nothing: a typing error, or a record's id where a subject's is meant."""
    names, nothing = counted(len(report.unknown), "name"), "nothing would be" if report.dry_run else "NOTHING WAS"
    why = "The run has never held a record or subject of that id"
    if report.unreadable:
        why = f"The ledger does not know them, and {places_in_words(report.unreadable)} cannot be read: see s3t audit"
    return (
        f"WARNING: {names} UNKNOWN, {nothing} deleted for {'it' if len(report.unknown) == 1 else 'them'}: "
        f"{listed(report.unknown)}. {why}; --json lists all"
    )


def _print_state(report: DeletionReport, run: Path) -> None:
    for export in report.to_withdraw:
        would = "would have to be withdrawn" if report.dry_run else "to be withdrawn"
        typer.echo(f"{would}: {withdrawal(export, run)}")
    if report.dry_run and report.slices:
        within = report.erase_within
        when = f"within {duration(within)}" if within else "before the command returns"
        typer.echo(f"it would be accepted and effective at once, and erased {when}")
    if report.entries:
        typer.echo(f"{report.state}: {history(report.entries)}")
        pending = [entry for entry in report.entries if entry.state == report.state and entry.erased_at is None]
        if pending:
            typer.echo(remedy(pending[-1], report.erase_within, run))
