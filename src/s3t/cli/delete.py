"""`s3t delete`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

import s3t
from s3t.cli.display import print_deletion
from s3t.cli.names import FileOption, names_in
from s3t.cli.options import JsonOption, MovedOption
from s3t.cli.outcome import FAILED, failures_reported, show
from s3t.cli.remote import RunOrServerArgument, UrlOption, folder, server
from s3t.progress import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.results.changes import Deletion

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
        asked: dict[str, Any] = {"records": records, "subjects": subjects, "key": key, "strict": strict}
        if (client := server(run, url, local=["--moved"] if moved else [])) is not None:
            with client:
                done = client.delete(**asked, dry_run=dry_run)
            show(done.to_json(), as_json, lambda: print_deletion(done, url))
            if done.held is not None:
                raise typer.Exit(FAILED)
            return
        path = folder(run)
        with s3t.Run.open(path, moved=moved) as opened:
            if not dry_run and not yes and sys.stdin.isatty() and sys.stderr.isatty():
                _ask(opened.delete(**asked, dry_run=True))
            done = opened.delete(**asked, dry_run=dry_run, repair=False, progress=ProgressBar())
            if not as_json:  # before a repair, which may take long
                show({}, False, lambda: print_deletion(done, path))
            if done.repair_due and not dry_run:
                done = _repaired(opened, done, as_json=as_json)
        if as_json:
            show(done.to_json(), as_json, lambda: None)
            for warning in done.warnings:
                typer.echo(f"s3t: warning: {warning}", err=True)
        if done.repair_failed is not None:
            typer.echo(f"s3t: the deletion is done; the repair failed: {done.repair_failed}", err=True)
            raise typer.Exit(FAILED)


def _ask(planned: Deletion) -> None:
    """Ask a person before nothing answers any more. A script is not asked, lest a person's request waits for it."""
    if not any(planned.depths_before) or any(planned.depths_after):
        return
    for warning in planned.warnings:
        typer.echo(f"s3t: {warning}", err=True)
    if not typer.confirm(f"Delete {counted(planned.deleted, 'record')}?", err=True):
        typer.echo("nothing was deleted", err=True)
        raise typer.Exit(FAILED)


def _repaired(run: s3t.Run, done: Deletion, *, as_json: bool) -> Deletion:
    """The deletion with the repair after it, which the recipe asks for."""
    if as_json:
        typer.echo(f"s3t: {counted(done.deleted, 'record')} deleted, durably; repairing now", err=True)
    try:
        repair = run.repair(progress=ProgressBar())
    except s3t.S3TError as failed:
        return done.model_copy(update={"repair_failed": str(failed)})
    if not as_json:
        typer.echo(f"{counted(repair.trained, 'stage')} repaired in {repair.seconds:.1f} s, as deletion.repair says")
        for warning in repair.outage:
            typer.echo(f"warning: {warning}")
    return done.model_copy(update={"repair": repair, "warnings": repair.outage})
