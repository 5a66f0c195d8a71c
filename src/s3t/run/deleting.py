"""Deletions, and what goes with them, on an open run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from s3t.aftermath import KEY_NOTED_AS_DESTROYED, NOTHING_CHANGED, OUT_OF_USE, after_refusal
from s3t.deletion.request import Request
from s3t.errors import UnknownNamesError
from s3t.inventory import Inventory
from s3t.ledger.locks import needed
from s3t.progress import Progress, telling
from s3t.records import requested
from s3t.run.parts import Parts
from s3t.run.results import DeletionReport, Reconciliation, Status
from s3t.run.secret import destroy_secret
from s3t.wording import counted


def delete(
    parts: Parts,
    status: Callable[[Inventory], Status],
    *,
    records: Sequence[str],
    subjects: Sequence[str],
    key: str | None,
    strict: bool,
    dry_run: bool,
    progress: Progress,
) -> DeletionReport:
    """Delete, and report.

    Args:
        parts: of the run.
        status: the status that an inventory makes.
        records: ids.
        subjects: people.
        key: the idempotency key; an empty one would be everybody's, and is refused.
        strict: refuse unless every name is known.
        dry_run: do nothing.
        progress: hears of names that are accepted.

    Raises:
        UnknownNamesError: `strict`, and a name is unknown; nothing has changed.
    """
    if not dry_run:
        parts.check_changeable()
    named = None if key is None else requested("the idempotency key", [key])[0]
    with after_refusal(NOTHING_CHANGED):
        request = Request.of(parts.secret, records=records, subjects=subjects, key=named)
        if strict and (unknown := parts.deleter.delete(request, dry_run=True).unknown):  # a known name stays one
            raise UnknownNamesError(unknown, asked=len(request.names))
    with telling(progress, f"deleting by {counted(len(request.names), 'name')}", len(request.names)):
        outcome = parts.deleter.delete(request, dry_run=dry_run, progress=progress)
    with after_refusal(OUT_OF_USE) if outcome.entries else nullcontext():
        after = status(outcome.after)
    return DeletionReport(
        dry_run=dry_run,
        deleted=outcome.deleted,
        already=outcome.already,
        unknown=outcome.unknown,
        unreadable=outcome.unreadable,
        slices=tuple(sorted(outcome.losses)),
        stages_lost=outcome.stages_lost,
        before=outcome.before,
        status=after,
        entries=outcome.entries,
        erase_within=parts.recipe.deletion.erase_within,
        repeated=outcome.repeated,
    )


def reconcile(parts: Parts, *, status: Callable[[], Status]) -> Reconciliation:
    """Apply later deletions to a run that is an older state of itself.

    Args:
        parts: of the run.
        status: the run's, afterwards.
    """
    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED), needed(parts.lock):
        done = parts.reconciler().reconcile()
    return Reconciliation(
        rows=done.rows, records=done.records, slices=done.slices, stages_lost=done.stages, status=status()
    )


def destroy_key(parts: Parts) -> None:
    """Erase what waits, then destroy the run's secret."""
    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED), needed(parts.lock):
        while not _only_present_records_left(parts):
            pass
        with after_refusal(KEY_NOTED_AS_DESTROYED):
            destroy_secret(parts.layout.secret)


def _only_present_records_left(parts: Parts) -> bool:
    """Erase what waits; if meanwhile nobody asked for another deletion, note that from here on nobody can."""
    parts.deleter.finish(everything=True)
    with parts.ledger.writing() as transaction:
        work = transaction.to_erase()
        if work.records or work.artifacts or work.versions:
            return False
        transaction.note_key_destroyed()
    return True
