"""List requests for deletion that a server holds for approval; approve or refuse them (s3t serve)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

import s3t
from s3t.cli.delete import print_repair, told_and_repaired
from s3t.cli.display import moment
from s3t.cli.options import RunArgument
from s3t.cli.output import JsonOption, Output
from s3t.errors import InputError
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.results.serving import Held

BY = "the command line"
"""Name under which decisions of this command are noted. Who can open the run's folder may decide."""
IdArgument = Annotated[str, Argument(metavar="ID", help="From s3t deletions held.", show_default=False)]


def held(
    run: RunArgument,
    waiting: Annotated[bool, Option("--waiting", help="Only those that wait for a decision.")] = False,
    asked_by: Annotated[str | None, Option(metavar="NAME", help="Only those of one token.")] = None,
    limit: Annotated[int | None, Option(metavar="N", min=1, help="So many at most.")] = None,
) -> Iterator[Output]:
    """List held requests with their reasons and decisions, the newest first. Names are not shown: none are kept.

    A server holds a request that is over its limits of an hour (s3t serve --hold-records, --hold-share). Nothing of it
    is deleted before it is approved.
    """
    with s3t.Run.open(run) as opened:
        every = opened.approvals.waiting() if waiting else opened.approvals.all()
    found = [one for one in every if asked_by in (None, one.asked_by)][:limit]
    yield Output({"held": found})
    _print(found)


def approve(run: RunArgument, id: IdArgument, as_json: JsonOption = False) -> Iterator[Output]:
    """Carry a held request out, as s3t delete would. When the command returns, its records are durably out of use."""
    with s3t.Run.open(run) as opened:
        done = opened.approvals.approve(id, by=BY, repair=False)
        outcome = told_and_repaired(opened, done.outcome, run, repairs=True, as_json=as_json)
    yield Output(done.model_copy(update={"outcome": outcome}), failed=outcome.repair_failed is not None)
    print_repair(outcome)
    typer.echo(_in_words(done))


def refuse(
    run: RunArgument,
    reason: Annotated[
        str,
        Option(metavar="TEXT", help="Reason; it is kept, and shown to the caller that asked. Name no person."),
    ],
    id: Annotated[str | None, Argument(metavar="[ID]", help="From s3t deletions held.")] = None,
    asked_by: Annotated[str | None, Option(metavar="NAME", help="Instead of ID: all of one token that wait.")] = None,
) -> Iterator[Output]:
    """Refuse a held request: nothing of it is deleted, and its names are forgotten."""
    if (id is None) == (asked_by is None):
        raise InputError("the command", "give ID or --asked-by, one of them")
    with s3t.Run.open(run) as opened:
        if id is None:
            many = opened.approvals.refuse_all(str(asked_by), by=BY, reason=reason)
        else:
            refused = opened.approvals.refuse(id, by=BY, reason=reason)
    if id is None:
        yield Output({"held": many})
        _print(many)
    else:
        yield Output(refused)
        typer.echo(_in_words(refused))


COMMANDS = {"held": held, "approve": approve, "refuse": refuse}


def _print(found: Sequence[Held]) -> None:
    if not found:
        typer.echo("no request is held")
        return
    for one in found:
        state = "waits" if one.state == "held" else _in_words(one)
        typer.echo(f"{one.id}  {moment(one.asked_at)} UTC, {one.asked_by}: {counted(one.records, 'record')}; {state}")
        typer.echo(f"    held because: {one.why}")


def _in_words(one: Held) -> str:
    if one.state == "refused":
        return f"refused by {one.decided_by}: {one.reason}"
    if one.state == "approved":
        return f"approved by {one.decided_by}, not carried out yet: `s3t erase` goes on with it"
    took = "it took nothing" if one.deletion is None else f"deletion {one.deletion}"
    return f"approved by {one.decided_by}: {took}"
