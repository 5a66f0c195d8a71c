"""Deletions and decisions on held ones, for the API and for the page."""

from __future__ import annotations

from functools import partial
from http import HTTPStatus

from anyio import to_thread

from s3t.ledger import Held
from s3t.results.changes import Deletion
from s3t_server.answering import ServedRun
from s3t_server.callers import Caller
from s3t_server.documents import DeletionRequest
from s3t_server.problems import Refused


async def dry_run(served: ServedRun, asked: DeletionRequest, caller: Caller) -> Deletion:
    """Say what a deletion would do."""
    if not caller.may("operate"):
        raise Refused(HTTPStatus.FORBIDDEN, "a dry run tells which slices are hit; it needs the scope operate")
    asked.check_count(served.settings.max_names)
    return await to_thread.run_sync(partial(served.run.delete, **asked.model_dump()), limiter=served.deletions)


async def delete(served: ServedRun, asked: DeletionRequest, caller: Caller, *, key: str | None) -> Deletion:
    """Delete, unless only a dry run is asked for; a request over the server's limits is held."""
    if asked.dry_run:
        return await dry_run(served, asked, caller)
    asked.check_count(served.settings.max_names)
    admit = partial(
        served.run.approvals.admit,
        records=asked.records,
        subjects=asked.subjects,
        strict=asked.strict,
        key=key,
        caller=caller.ledger_name,
        limits=served.settings.limits,
    )
    if (held := await to_thread.run_sync(admit, limiter=served.deletions)) is not None:
        return Deletion(
            id=None,
            generation=None,
            deleted=0,
            already=None,
            unknown=None,
            state="approved" if held.state == "done" else held.state,  # `admit` returns none that is done
            held=held.id,
        )
    act = partial(served.run.delete, **asked.model_dump(), key=key, wait=False)
    done = await to_thread.run_sync(act, limiter=served.deletions)
    if not done.repeated:
        served.metrics.deleted(served.name, done.deleted)
    return done


async def approve(served: ServedRun, id: str, caller: Caller) -> Held:
    """Approve a held request, and carry it out. The caller has the scope operate."""
    return await to_thread.run_sync(partial(_approve, served, id, caller), limiter=served.deletions)


def _approve(served: ServedRun, id: str, caller: Caller) -> Held:
    held = held_request(served, id)
    done = served.run.approvals.approve(id, by=caller.ledger_name)
    if held.done_at is None and done.generation is not None:
        served.metrics.deleted(served.name, served.run.log([done.generation])[0].records)
    return done


def refuse(served: ServedRun, id: str, caller: Caller, *, reason: str) -> Held:
    """Refuse a held request. The caller has the scope operate."""
    held_request(served, id)
    return served.run.approvals.refuse(id, by=caller.ledger_name, reason=reason)


def held_request(served: ServedRun, id: str) -> Held:
    held = served.run.approvals.find(id)
    if held is None:
        raise Refused(HTTPStatus.NOT_FOUND, "there is no such held request")
    return held
