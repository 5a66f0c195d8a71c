"""Commands that delete records, and say what became of them: delete, locate, log, erase, reconcile, destroy-key."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

import s3t
from s3t.cli.display import (
    history,
    moment,
    places_in_words,
    print_deletion,
    print_status,
    print_table,
    print_unfinished,
    remedy,
)
from s3t.cli.options import (
    DryRunOption,
    FileOption,
    MovedOption,
    RecordOption,
    RunArgument,
    RunOrServerArgument,
    SubjectOption,
    UrlOption,
    names_in,
    opened,
)
from s3t.cli.output import FAILED, JsonOption, Output, printing
from s3t.progress import ProgressBar
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.results.changes import Deletion
    from s3t.results.log import Location

STEPS = ("received", "accepted", "effective", "erased")
WIDTH = 120
"""Columns that the times of these steps side by side need."""
WARNING = (
    "destroying the run's secret cannot be undone: the run goes on answering, but no record can be deleted, located, "
    "trained on or audited any more. A later request can be honoured only by removing the whole run. If that is what "
    "you want, add --yes"
)


def delete(
    run: RunOrServerArgument = None,
    record: RecordOption = None,
    subject: SubjectOption = None,
    file: FileOption = None,
    key: Annotated[
        str | None,
        Option(
            metavar="KEY",
            help="Idempotency key, such as a ticket's number: repeated with it, the request is carried out once. With "
            "other names it is refused. A key under which nothing was deleted stays free.",
        ),
    ] = None,
    strict: Annotated[
        bool, Option("--strict", help="Delete nothing, and exit with 1, unless the run holds, or has held, every name.")
    ] = False,
    dry_run: DryRunOption = False,
    yes: Annotated[
        bool, Option("--yes", help="At a terminal: do not ask, even if no shard would answer afterwards.")
    ] = False,
    moved: MovedOption = False,
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> Iterator[Output]:
    """Delete records exactly and at once; what is left goes on serving.

    When the command returns, the deletion is durable. Ids that are gone already or unknown are listed and change
    nothing; the exit status is still 0. The last line warns of unknown ones; --strict makes them an error.

    If it is unknown whether a request arrived, because a connection broke or a machine stopped, repeat it with the same
    --key. Nothing is done twice, and the output is that of the first request:

        s3t delete RUN --subject c7 --key ticket-4711

    What is typed is seen by all users of the machine (ps), and kept in the shell's history. To keep names out of both:

        s3t delete RUN --subject - < names.txt
    """
    records, subjects = names_in(record, subject, file, verb="delete")
    asked: dict[str, Any] = {"records": records, "subjects": subjects, "key": key, "strict": strict}
    with opened(run, url, moved=moved) as target:
        if not dry_run and not yes and sys.stdin.isatty() and sys.stderr.isatty():
            _ask(target, asked)
        of_run = {"repair": False, "progress": ProgressBar()} if url is None else {}
        done = target.delete(**asked, dry_run=dry_run, **of_run)
        done = told_and_repaired(target, done, run or url, repairs=url is None and not dry_run, as_json=as_json)
    yield Output(done, failed=bool(done.held or done.repair_failed))
    print_repair(done)


def _ask(target: Any, asked: dict[str, Any]) -> None:
    """Ask a person before nothing answers any more. A script is not asked, lest a person's request waits for it."""
    try:
        planned = target.delete(**asked, dry_run=True)
    except s3t.ServerError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return  # the token's scopes do not allow a forecast
    if not any(planned.depths_before) or any(planned.depths_after):
        return
    for warning in planned.warnings:
        typer.echo(f"s3t: {warning}", err=True)
    if not typer.confirm(f"Delete {counted(planned.deleted, 'record')}?", err=True):
        typer.echo("nothing was deleted", err=True)
        raise typer.Exit(FAILED)


def told_and_repaired(target: Any, done: Deletion, where: Any, *, repairs: bool, as_json: bool) -> Deletion:
    """The deletion, printed with its warnings, with the repair after it that the recipe asks for."""
    try:
        if not as_json:  # now: a repair may take long
            with printing():
                print_deletion(done, where)
    finally:  # also if stdout is full
        if repairs and (done.repair_due or done.heads_due):
            if as_json:
                typer.echo(f"s3t: {counted(done.deleted, 'record')} deleted, durably; repairing now", err=True)
            from s3t.run.deleting import repaired

            done = repaired(target.parts, done, ProgressBar())
            if done.repair_failed is not None:
                typer.echo(f"s3t: the deletion is done; the repair failed: {done.repair_failed}", err=True)
    for warning in done.warnings if as_json else ():
        typer.echo(f"s3t: warning: {warning}", err=True)
    return done


def print_repair(done: Deletion) -> None:
    if done.repair is not None:
        noun, why = ("stage", "deletion.repair") if done.repair_due else ("readout", "head: ridge")
        typer.echo(f"{counted(done.repair.trained, noun)} repaired in {done.repair.seconds:.1f} s, as {why} says")
        for warning in done.warnings:
            typer.echo(f"warning: {warning}")


def locate(
    run: RunOrServerArgument = None,
    record: RecordOption = None,
    subject: SubjectOption = None,
    file: FileOption = None,
    url: UrlOption = None,
) -> Iterator[Output]:
    """Look up whether records and people are in the run: present and where, deleted and when, or never held.

    For the operator who has to answer "do you still have my data?", before a deletion and after it. Changes nothing.
    """
    records, subjects = names_in(record, subject, file, verb="look up")
    with opened(run, url) as target:
        locations = target.locate(records=records, subjects=subjects)
    yield Output({"located": locations})
    for location in locations:
        typer.echo(f"{location.kind} {location.name}: {_in_words(location)}")


def _in_words(location: Location) -> str:
    if location.present:
        return f"present, {counted(location.records, 'row')} in {places_in_words(location.places)}"
    if location.deleted is None:
        if location.unreadable:
            return f"unknown to the ledger; {places_in_words(location.unreadable)} cannot be read"
        return "unknown: the run has never held it"
    return f"deleted by generation {location.deleted.generation}: {history([location.deleted])}"


def log(run: RunOrServerArgument = None, url: UrlOption = None) -> Iterator[Output]:
    """Show every deletion: how many records it took, and when it was received, accepted, effective and erased; and
    every addition.

    The log holds no names. To find the deletion of a record, give its name to s3t locate.
    """
    with opened(run, url) as target:
        entries = target.log()
        additions = target.additions()
    yield Output({"log": entries, "additions": additions})
    creation, *deletions = entries
    since = f"since {moment(creation.received_at)} UTC, when the run was made"
    rows = [
        {"generation": entry.generation, "records": entry.records}
        | {f"{step} (UTC)": moment(getattr(entry, f"{step}_at")) for step in STEPS}
        for entry in deletions
    ]
    typer.echo(f"{counted(len(deletions), 'deletion')} {since}")
    print_table("", rows, width=WIDTH)
    if additions:
        came = [
            {"addition": each.addition, "added (UTC)": moment(each.added_at)}
            | {"records": each.records, "readmitted": each.readmitted}
            for each in additions
        ]
        print_table(counted(len(additions), "addition"), came, width=WIDTH)
    for entry in deletions:
        if entry.to_withdraw:
            typer.echo(f"generation {entry.generation}: {remedy(entry, None, run or url)}")


def erase(
    run: RunArgument,
    clones_are_gone: Annotated[
        bool,
        Option(
            "--clones-are-gone",
            help="Say that unfinished clones on other hosts, or on disks that are not mounted, are gone for good. "
            "Without it, a deletion waits until `s3t erase` has run where they are.",
        ),
    ] = False,
    moved: MovedOption = False,
) -> Iterator[Output]:
    """Erase now what is deleted and still waits in its slice's file (deletion.erase_within), and say what is left.

    Nothing uses such records any more; this takes away their bytes. For cron: run it more often than
    deletion.erase_within. It does no harm where nothing waits. Exit status 1 if disk or database refuses, or if a
    slice's file is not the ledger's and may hold deleted records: then run `s3t reconcile`.
    """
    with s3t.Run.open(run, moved=moved) as target:
        status = target.erase(clones_are_gone=clones_are_gone)
    yield Output(status)
    if not status.unfinished:
        typer.echo("every deletion is erased; nothing is left")
    print_unfinished(status, run)


def reconcile(run: RunArgument, moved: MovedOption = False) -> Iterator[Output]:
    """Delete again what was deleted after a backup was made that is now put back.

    A run that is an older state of itself neither serves nor trains: every command refuses it and names this one. What
    was deleted later is known from a memory outside of the run's folder (S3T_STATE), from the ledger, or from the
    slices, whichever is newest. A slice's file that no deletion explains is refused, and nothing is changed. Does no
    harm to a run that is as it should be. After `s3t destroy-key`, files of slices that are too old are removed.
    """
    done = s3t.Run.reconcile(run, moved=moved)
    with s3t.Run.open(run) as target:
        status = target.status()
    yield Output(done)
    mended, lost = counted(len(done.slices), "slice"), counted(done.stages_lost, "stage")
    if done.rows:
        typer.echo(f"{counted(done.rows, 'row')} of the ledger mended")
    typer.echo(f"{counted(done.records, 'record')} deleted again, {mended} brought up to date, {lost} lost")
    print_status(status, run)


def destroy_key(
    run: RunArgument,
    yes: Annotated[bool, Option("--yes", help="Destroy it. Without this option nothing is changed.")] = False,
    moved: MovedOption = False,
) -> Iterator[Output]:
    """Destroy the run's secret, so that hashes of deleted records in ledger and manifests can never be tested.

    The ledger keeps keyed hashes of the ids that were deleted. Without the secret nobody can test a guess against
    them. Pending erasures are carried out first. The run goes on answering; it cannot delete, locate, train, repair or
    audit any more. This cannot be undone.
    """
    from s3t.store.secret import FILE_VARIABLE, VARIABLE, secret_of_environment

    if not yes:
        raise s3t.InputError("the command", WARNING)
    with s3t.Run.open(run, moved=moved) as target:
        target.destroy_key()
    yield Output({"destroyed": True})
    typer.echo("the run's secret is destroyed; the run goes on answering, and does nothing else")
    typer.echo(
        "a salt that a recipe file of yours declares, or that lies in a vault or a backup, still opens the hashes: "
        "remove it there"
    )
    if secret_of_environment() is not None:
        typer.echo(f"{VARIABLE} or {FILE_VARIABLE} still holds a secret: if it is this run's, remove it everywhere")
