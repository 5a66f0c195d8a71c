"""Deletions on an open run, and what goes with them: repair by policy, erasure, reconciliation, the end of the key."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from s3t.aftermath import KEY_NOTED_AS_DESTROYED, NOTHING_CHANGED, OUT_OF_USE, after_refusal
from s3t.core import Place, Secret, slices_among
from s3t.deletion import protocol
from s3t.deletion.acceptance import Request
from s3t.errors import InputError, RecipeError, S3TError, UnknownNamesError
from s3t.events import Progress, silent, telling
from s3t.ledger import Transaction
from s3t.ledger.locks import hold
from s3t.ledger.rows import OVERDUE
from s3t.recipe import repair_due
from s3t.records.requests import other_forms, requested, requested_names
from s3t.results.changes import Deletion, Reconciliation
from s3t.results.state import Status
from s3t.run.parts import Parts
from s3t.run.reporting import exports_of, inventory_now, missing_hours, outage_of, shards_of, status_of
from s3t.run.training import engine_of, train_missing
from s3t.store.secret import destroy_secret
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.run.run import Run

MAX_EXPIRED = 0.1
"""Share of a run's records that expire at once at most."""
_HINTED = 20
"""Unknown names of which other forms are looked for."""


def withdraw(run: Run, name: str) -> Status:
    """Note that no copy of an export is left, in no folder and in no server; deletions wait for it no more.

    Raises InputError if the run has made no such export, or if it is still there on this host.
    """
    parts = run.parts
    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED):
        parts.latest.snapshot()  # refuses an older ledger
        parts.withdrawer.withdraw(name)
    return status_of(parts, inventory_now(parts))


def delete(
    run: Run,
    *,
    records: Sequence[str | int] = (),
    subjects: Sequence[str | int] = (),
    key: str | None = None,
    strict: bool = False,
    dry_run: bool = False,
    wait: bool = True,
    repair: bool = True,
    progress: Progress | None = None,
) -> Deletion:
    """Delete records by id and by subject. Durable when it returns; serves on without them at once.

    Then repairs, if the recipe's `deletion.repair` asks for it, by default if no shard answers any more, else makes
    anew what heads are solved from: the result has the repair's own, or its error, which takes nothing of the deletion
    back. Its `warnings` tell of shards that do not answer.

    Names that are gone already or that the run has never held are reported and change nothing. Long requests are
    accepted ten thousand names at a time.

    Args:
        records: record ids.
        subjects: people; all their records go.
        key: an idempotency key: a request that is made again with the same key does nothing more, and is answered
            with what it did. Made again after a crash, it goes on. A key that took nothing stays free.
        strict: delete nothing unless the run holds, or has held, every name.
        dry_run: say what would happen, and do nothing.
        wait: False: return once it is effective: it is erased in the background, or when the run is opened next. Do
            not repair, nor wait for processes that train with the records.
        repair: False: do not repair, nor solve heads anew; `repair_due` and `heads_due` say if that is to be done.
        progress: hears of a long request, and of the repair.

    Raises:
        InputError: no name, a string instead of a list, an empty name, or a key that was used for other names.
        UnknownNamesError: `strict`, and a name is unknown.
        IntegrityError: a slice's file is not one that the ledger knows (see `aftermath`); or as `open`.
    """
    parts = run.parts
    with after_refusal(NOTHING_CHANGED):
        parts.latest.snapshot()  # refuses an older ledger
        names = requested_names(records, subjects)
    if not dry_run:
        parts.check_changeable()
    # An empty key would be everybody's, and is refused.
    key = None if key is None else requested("the idempotency key", [key])[0]
    with after_refusal(NOTHING_CHANGED):
        request = Request.of(parts.secret, **names, key=key)
        if strict and (unknown := parts.deleter.delete(request, dry_run=True).unknown):  # a known name stays one
            raise UnknownNamesError(unknown, asked=len(request.names))
    return _deleted(parts, request, dry_run=dry_run, wait=wait, repair=repair, progress=progress or silent)


def expire(
    run: Run,
    *,
    max_deletions: float = MAX_EXPIRED,
    dry_run: bool = False,
    repair: bool = True,
    progress: Progress | None = None,
) -> Deletion:
    """Delete the records that are older than the recipe's `retention` allows, as `delete` does.

    Args:
        max_deletions: share of the run's records that go at most; with more, nothing is done: the clock may be wrong.
        dry_run: as for `delete`.
        repair: as for `delete`.

    Raises:
        RecipeError: the recipe has no retention.
        InputError: more would go.
    """
    parts, retention = run.parts, run.recipe.retention
    if retention is None:
        raise RecipeError("the recipe", "says of no record how long it stays (retention)")
    with after_refusal(NOTHING_CHANGED):
        parts.latest.snapshot()  # refuses an older ledger
        if not dry_run:
            parts.check_changeable()
        old = _older_than(retention.oldest(), parts)
        what = f"{counted(len(old), 'record')} from before {retention.oldest()} would go"
        check_expiry(parts, max_deletions, len(old), what, dry_run=dry_run)
    request = Request.unasked(parts.secret, old)
    return _deleted(parts, request, dry_run=dry_run, wait=True, repair=repair, progress=progress or silent)


def check_expiry(parts: Parts, most: float, count: int, what: str, *, dry_run: bool) -> None:
    """Refuse that more than a share of the run's records expire, as the clock may be wrong. The status tells of it."""
    refused: InputError | None = None
    try:
        check_share(parts, most, count, what, "See whether the clock is right")
    except InputError as error:
        refused = error
    overdue = 0 if refused is None else count
    with parts.ledger.reading() as transaction:
        noted = transaction.rows.note(OVERDUE)
    if noted != overdue and not dry_run and (refused is None or MAX_EXPIRED <= most <= 1):
        with parts.ledger.writing() as transaction:
            transaction.rows.write_note(OVERDUE, to=overdue)
    if refused is not None:
        raise refused


def _older_than(oldest: str, parts: Parts) -> dict[str, Place]:
    """Ids of the present records from before a date, with their segments."""
    found: dict[tuple[bytes, Place], str] = {}
    for place, state in sorted(parts.ledger.snapshot().slices.items()):
        if state.records:
            rows = parts.lookup.read(place, ["record", "date"])
            dated = zip(rows["record"].to_pylist(), rows["date"].to_pylist(), strict=True)
            old = (name for name, date in dated if date < oldest)
            found |= {(parts.secret.token("ledger", "record", name), place): name for name in old}
    with parts.ledger.reading() as transaction:  # what was deleted or replaced may wait in a file to be erased
        present = transaction.places_of({token for token, _ in found})
    return {name: place for (token, place), name in found.items() if present.get(token) == place}


def check_share(parts: Parts, most: float, count: int, what: str, remedy: str) -> None:
    """Refuse a deletion of more than a share of the run's records."""
    if not 0 <= most <= 1:
        raise InputError("max_deletions", f"is {most}; give a share from 0 to 1")
    held = sum(state.records for state in parts.ledger.snapshot().slices.values())
    if count > math.ceil(most * held):
        too_many = f"more than {most:.4g} of the run's {counted(held, 'record')}"
        raise InputError(
            "the deletion", f"{what}, {too_many}; nothing was changed. {remedy}; if so, allow more (max_deletions)"
        )


def _deleted(
    parts: Parts, request: Request, *, dry_run: bool, wait: bool, repair: bool, progress: Progress
) -> Deletion:
    heard = progress if len(request.names) > protocol.BATCH_NAMES and not dry_run else silent
    with telling(heard, f"deleting by {counted(len(request.names), 'name')}", len(request.names)):
        outcome = parts.deleter.delete(request, dry_run=dry_run, until_erased=wait, progress=heard)
    if not wait and outcome.entries:
        parts.upkeep.erase_soon(outcome.after.generation)
        parts.presence.start()
    with after_refusal(OUT_OF_USE if outcome.entries else NOTHING_CHANGED):
        done = deletion_of(parts, outcome, dry_run=dry_run)
    return repaired(parts, done, progress) if repair and wait and not dry_run else done


def repaired(parts: Parts, done: Deletion, progress: Progress) -> Deletion:
    """A deletion with the repair after it, if the recipe asks for one."""
    if not (done.repair_due or done.heads_due):
        return done
    try:
        until = math.inf if done.repair_due else 0
        repaired = train_missing(parts, progress, engine=engine_of(parts), until=until)
    except S3TError as failed:
        return done.model_copy(update={"repair_failed": str(failed)})
    return done.model_copy(update={"repair": repaired, "warnings": repaired.outage})


def deletion_of(parts: Parts, outcome: protocol.Outcome, *, dry_run: bool) -> Deletion:
    """The result of a deletion, or the forecast of one (`dry_run`)."""
    before, after, missing = outcome.before, outcome.after, outcome.after.missing()
    with parts.ledger.reading() as transaction:
        now, standing = transaction.snapshot(), transaction.exports.standing()
        tainted = transaction.exports.to_withdraw()
        hours = missing_hours(parts, after, missing, transaction)
        hints = _hints(parts.secret, transaction, outcome.unknown[:_HINTED])
    if dry_run:
        hit = [row for row in standing if not outcome.losses.keys().isdisjoint(row.places)]
    else:
        names = {name for entry in outcome.entries for name in entry.to_withdraw or ()}
        hit = [row for row in tainted if row.label in names]
    states = {entry.state for entry in outcome.entries}
    within = parts.recipe.deletion.erase_within
    waiting = [entry.received_at + timedelta(seconds=within) for entry in outcome.entries if entry.erased_at is None]
    return Deletion(
        id=max((entry.generation for entry in outcome.entries), default=None),
        generation=after.generation,
        deleted=outcome.deleted,
        already=outcome.already,
        unknown=outcome.unknown,
        hints=hints,
        state=next((state for state in ("accepted", "effective", "erased") if state in states), None),
        repeated=outcome.repeated,
        dry_run=dry_run,
        warnings=outage_of(parts, after, planned=dry_run),
        log=outcome.entries,
        erased_by=max(waiting, default=None),
        erase_within=within,
        unreadable=outcome.unreadable,
        slices=slices_among(outcome.losses),
        stages_lost=outcome.stages_lost,
        depths_before=before.depths(),
        depths_after=after.depths(),
        answering=len(after.answering()),
        shards=shards_of(after, sorted({place.shard for place in outcome.losses})),
        missing=len(missing),
        missing_hours=hours,
        to_withdraw=exports_of(hit, tainted),
        repair_due=repair_due(parts.present_recipe.deletion.repair, after, trained=now.trained),
        heads_due=bool(after.missing_readouts()),
    )


def _hints(secret: Secret, transaction: Transaction, unknown: Sequence[str]) -> tuple[str, ...]:
    """For names that the run does not hold, what it holds under another form of them, or as the other kind."""
    if not unknown:
        return ()
    forms = {
        (kind, secret.token("ledger", kind, form)): (name, f"{kind} {form}")
        for name in unknown
        for kind in ("record", "subject")
        for form in other_forms(name)
    }
    tokens = {wanted: [token for kind, token in forms if kind == wanted] for wanted in ("record", "subject")}
    rows = transaction.locate(records=tokens["record"], subjects=tokens["subject"]).rows
    held = {("record", row.token) for row in rows} | {("subject", row.subject) for row in rows if row.subject}
    found: dict[str, str] = {}
    for each, (name, other) in forms.items():
        if each in held:
            found.setdefault(name, f"{name}: the run holds {other}")
    return tuple(found.values())


def erase(run: Run, *, clones_are_gone: bool = False) -> Status:
    """Erase now whatever is accepted and waits for it (`deletion.erase_within`). `clones_are_gone`: what
    killed clones left on other hosts, or on disks that are not here; it is waited for else.

    Raises:
        StorageError: the disk or the database refused, or a clone is being made.
        IntegrityError: a slice's file is not one that the ledger knows, whether or not something was to erase: it may
            hold what was deleted.
    """
    parts = run.parts
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
        return status_of(parts, inventory_now(parts))


def reconcile(parts: Parts) -> Reconciliation:
    from s3t.deletion.reconcile import reconcile

    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED), hold(parts.lock):
        return reconcile(parts.eraser)


def destroy_key(run: Run) -> None:
    """Destroy the run's secret, once what waits is erased: guesses can then never be tested against tokens, digests
    and keys.

    The run goes on answering. It cannot delete, train or be audited: its records go only with the whole run.
    """
    parts = run.parts
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
