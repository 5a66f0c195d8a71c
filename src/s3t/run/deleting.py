"""Deletions on an open run, and what goes with them: repair by policy, erasure, reconciliation, the end of the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from s3t.aftermath import KEY_NOTED_AS_DESTROYED, NOTHING_CHANGED, OUT_OF_USE, after_refusal
from s3t.deletion import deleter
from s3t.deletion.policy import repair_due
from s3t.deletion.request import Request
from s3t.errors import InputError, S3TError, UnknownNamesError
from s3t.folder.secret import destroy_secret
from s3t.ledger import Export
from s3t.ledger.locks import hold
from s3t.progress import SILENT, Progress, telling
from s3t.records.requests import requested, requested_names
from s3t.run.parts import Parts
from s3t.run.reporting import status_now, status_of
from s3t.run.results import DeletionReport, Reconciliation, Status
from s3t.wording import counted


def withdraw(parts: Parts, name: str) -> Status:
    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED):
        parts.latest.snapshot()  # refuses an older ledger
        parts.withdrawer.withdraw(name)
    return status_now(parts)


@dataclass(frozen=True, kw_only=True)
class DeletionArguments:
    records: Sequence[str | int]
    subjects: Sequence[str | int]
    key: str | None
    """The idempotency key; an empty one would be everybody's, and is refused."""
    strict: bool
    dry_run: bool
    wait: bool = True
    """Wait for processes that have records in memory, but cannot answer with them any more; repair by policy."""
    before_repair: Callable[[DeletionReport], None] | None = None


def delete(parts: Parts, asked: DeletionArguments, progress: Progress) -> DeletionReport:
    """Delete, repair if the recipe's `deletion.repair` asks for it now, and report.

    A repair that fails takes nothing of the deletion back: the report has its error.
    """
    with after_refusal(NOTHING_CHANGED):
        parts.latest.snapshot()  # refuses an older ledger
        names, dry_run = requested_names(asked.records, asked.subjects), asked.dry_run
    if not dry_run:
        parts.check_changeable()
    key = None if asked.key is None else requested("the idempotency key", [asked.key])[0]
    with after_refusal(NOTHING_CHANGED):
        request = Request.of(parts.secret, **names, key=key)
        if asked.strict and (unknown := parts.deleter.delete(request, dry_run=True).unknown):  # a known name stays one
            raise UnknownNamesError(unknown, asked=len(request.names))
    heard = progress if len(request.names) > deleter.BATCH_NAMES and not dry_run else SILENT
    with telling(heard, f"deleting by {counted(len(request.names), 'name')}", len(request.names)):
        outcome = parts.deleter.delete(request, dry_run=dry_run, until_erased=asked.wait, progress=heard)
    with after_refusal(OUT_OF_USE if outcome.entries else NOTHING_CHANGED):
        after = status_of(parts, outcome.after, planned=dry_run)
        policy, trained = parts.present_recipe.deletion.repair, parts.latest.snapshot().trained
    report = DeletionReport(
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
        repair=None,
        repair_error=None,
        to_withdraw=_to_withdraw(after, outcome, dry_run=dry_run),
    )
    if dry_run or not asked.wait or not repair_due(policy, outcome.after, trained=trained):
        return report
    if asked.before_repair is not None:
        asked.before_repair(report)
    from s3t.run.training import Trainer  # here: most deletions repair nothing

    try:
        return replace(report, repair=Trainer(parts).train_missing(progress, workers=1))
    except S3TError as failed:
        return replace(report, repair_error=failed)


def _to_withdraw(status: Status, outcome: deleter.Outcome, *, dry_run: bool) -> tuple[Export, ...]:
    if dry_run:
        hit = {(place.shard, place.slice) for place in outcome.losses}
        holds = (
            (export, any((export.stage.shard, index) in hit for index in export.stage.prefix))
            for export in status.exports
        )
        return tuple(export for export, hold in holds if hold)
    names = {name for entry in outcome.entries for name in entry.to_withdraw}
    return tuple(export for export in status.to_withdraw if export.label in names)


def erase(parts: Parts, *, clones_are_gone: bool) -> Status:
    """Erase everything that is accepted; returns the status after it.

    With `clones_are_gone`, clones that other hosts were making are believed to be gone. A slice's file that the ledger
    does not know is an error, whether or not something was to erase: it may hold what was deleted.
    """
    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED):
        waits = parts.ledger.snapshot().waiting_since is not None
    with after_refusal(OUT_OF_USE if waits else NOTHING_CHANGED):
        if clones_are_gone:
            parts.eraser.forget_clones()
        parts.presence.look()  # else the deletions would wait for this very session
        parts.upkeep.carry_out_approved(at_once=True)
        parts.eraser.sweep()
        parts.eraser.finish(everything=True, withdraw=True)
        parts.eraser.settle()
        if parts.secret.salt is not None:
            parts.eraser.check_slices()
        parts.upkeep.note_erased()
        return status_now(parts)


def reconcile(parts: Parts) -> Reconciliation:
    from s3t.deletion.reconcile import Reconciler

    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED), hold(parts.lock):
        eraser = parts.eraser
        done = Reconciler(ledger=parts.ledger, witness=parts.witness, eraser=eraser, secret=parts.secret).reconcile()
    return Reconciliation(
        rows=done.rows, records=done.records, slices=done.slices, stages_lost=done.stages, status=status_now(parts)
    )


def destroy_key(parts: Parts) -> None:
    """Erase what waits, then destroy the run's secret."""
    parts.check_changeable()
    parts.upkeep.carry_out_approved(at_once=True)
    with after_refusal(NOTHING_CHANGED), hold(parts.lock):
        while not _only_present_records_left(parts):
            pass
        with after_refusal(KEY_NOTED_AS_DESTROYED):
            destroy_secret(parts.layout.secret)


def _only_present_records_left(parts: Parts) -> bool:
    """Erase what waits; unless another deletion came meanwhile, note that none can follow."""
    parts.eraser.finish(everything=True)
    with parts.ledger.writing() as transaction:
        if left := sorted(transaction.held.approved()):  # it could never be carried out any more
            why = f": {error}" if (error := parts.upkeep.not_carried_out.get(left[0])) else ""
            raise InputError("destroy-key", f"request {left[0]} is approved, and not carried out yet{why}")
        work = transaction.to_erase()
        if work.records or work.artifacts or work.versions:
            return False
        transaction.history.note_key_destroyed()
    return True
