"""Deletions and decisions on held ones, for the API and for the page."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from anyio import to_thread

from s3t.deletion.holding import Limits
from s3t.results.changes import Deletion
from s3t.results.serving import Approved, Held
from s3t_server.callers import Caller
from s3t_server.documents import DeletionRequest
from s3t_server.problems import Refused
from s3t_server.served import ServedRun


async def delete(served: ServedRun, asked: DeletionRequest, caller: Caller, *, key: str | None = None) -> Deletion:
    """Delete, unless only a dry run is asked for; a request over the server's limits is held."""
    if asked.dry_run and not caller.may("operate"):
        raise Refused(HTTPStatus.FORBIDDEN, "a dry run tells which slices are hit; it needs the scope operate")
    asked.check_count(served.settings.max_names)

    def act() -> Deletion:
        if asked.dry_run:
            return served.run.delete(**asked.model_dump())
        held = served.run.approvals.admit(
            records=asked.records,
            subjects=asked.subjects,
            strict=asked.strict,
            key=key,
            caller=caller.ledger_name,
            limits=Limits(records=served.settings.hold_records, share=served.settings.hold_share),
        )
        if held is not None:
            state: Any = "approved" if held.state == "done" else held.state  # `admit` returns none that is done
            return Deletion(id=None, generation=None, deleted=0, already=None, unknown=None, state=state, held=held.id)
        done = served.run.delete(**asked.model_dump(), key=key, wait=False)
        if not done.repeated:
            served.metrics.deleted(served.name, done.deleted)
        return done

    return await to_thread.run_sync(act, limiter=served.deletions)


async def approve(served: ServedRun, id: str, caller: Caller) -> Approved:
    """Approve a held request, and carry it out. The caller has the scope operate."""

    def act() -> Approved:
        held = held_request(served, id)
        done = served.run.approvals.approve(id, by=caller.ledger_name, repair=False)
        if held.done_at is None and done.deletion is not None:
            served.metrics.deleted(served.name, served.run.log([done.deletion])[0].records)
        return done

    return await to_thread.run_sync(act, limiter=served.deletions)


def refuse(served: ServedRun, id: str, caller: Caller, *, reason: str) -> Held:
    """Refuse a held request. The caller has the scope operate."""
    held_request(served, id)
    return served.run.approvals.refuse(id, by=caller.ledger_name, reason=reason)


def held_request(served: ServedRun, id: str) -> Held:
    held = served.run.approvals.find(id)
    if held is None:
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such held request")
    return held
