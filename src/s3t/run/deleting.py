"""Deletions, and what goes with them, on an open run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from s3t.deletion.deleter import REPORTING, refusals_after_acceptance
from s3t.deletion.request import Request
from s3t.inventory import Inventory
from s3t.ledger.locks import needed
from s3t.progress import Progress, telling
from s3t.records import requested
from s3t.run.parts import Parts
from s3t.run.results import DeletionReport, Reconciliation, Status
from s3t.run.secret import destroy_secret


def delete(
    parts: Parts,
    status: Callable[[Inventory], Status],
    *,
    records: Sequence[str],
    subjects: Sequence[str],
    key: str | None,
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
        dry_run: do nothing.
        progress: hears of names that are accepted.
    """
    named = None if key is None else requested("the idempotency key", [key])[0]
    request = Request.of(parts.secret, records=records, subjects=subjects, key=named)
    present = parts.store.present()
    with telling(progress, "deleting", len(request.names)):
        outcome = parts.deleter.delete(request, dry_run=dry_run, progress=progress)
    with refusals_after_acceptance(REPORTING) if outcome.entries else nullcontext():
        after = status(outcome.after.keeping(present))
    return DeletionReport(
        dry_run=dry_run,
        deleted=outcome.deleted,
        already=outcome.already,
        unknown=outcome.unknown,
        slices=tuple(sorted(outcome.losses)),
        stages_lost=outcome.stages_lost,
        before=outcome.before.keeping(present),
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
    with needed(parts.lock):
        done = parts.reconciler().reconcile()
    return Reconciliation(records=done.records, slices=done.slices, stages_lost=done.stages, status=status())


def destroy_key(parts: Parts) -> None:
    """Erase what waits, then destroy the run's secret."""
    with needed(parts.lock):
        while not _only_present_records_left(parts):
            pass
        destroy_secret(parts.layout.secret)


def _only_present_records_left(parts: Parts) -> bool:
    """Erase what waits; if meanwhile nobody asked for another deletion, note that from here on nobody can."""
    parts.deleter.finish(everything=True)
    with parts.ledger.writing() as transaction:
        work = transaction.to_erase()
        if work.records or work.artifacts:
            return False
        transaction.note_key_destroyed()
    return True
