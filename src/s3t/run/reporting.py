"""A run's status, put together from its parts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from s3t.disk import open_to
from s3t.errors import S3TError
from s3t.folder.secret import weak_secret_warning
from s3t.inventory import Inventory
from s3t.ledger import LogEntry, Transaction
from s3t.run.advice import outage
from s3t.run.forecasting import hours_of
from s3t.run.parts import Parts
from s3t.run.results import Status
from s3t.wording import counted

MOMENT_SECONDS = 1.0
"""Time for which every deletion may wait for other processes, without a warning."""
READ_ONLY = (
    "the run is on a file system that is mounted read-only: it answers, and changes nothing. A deletion elsewhere "
    "does not wait for this process, though no answer leaves it that a deletion has overtaken"
)


def _open_folders(parts: Parts) -> Iterator[str]:
    """A warning for the run's folder, where others than its owner may enter it, and one for the memory of deletions.

    Files in a folder that other users may not enter are closed to them, whatever their own permissions; so the folder
    alone is looked at.
    """
    run, memory = parts.layout.root, parts.witness.path
    if (readers := open_to(run)) is not None:
        yield f"{readers} may enter {run}; if that is not meant, run `chmod -R go-rwx {run}`"
    for path in (memory.parent, memory):
        if path.exists() and (readers := open_to(path)) is not None:
            yield f"{readers} may look into {path}, the memory of deletions; run `chmod -R go-rwx {path}`"


def _waited_for(transaction: Transaction, unfinished: Sequence[LogEntry]) -> list[str]:
    """A warning for each process that the oldest unfinished deletion has been waiting for."""
    if not unfinished or time.time() < unfinished[0].received_at + MOMENT_SECONDS:
        return []
    number = unfinished[0].generation
    clones = [f"the clone in {clone.path}" for clone in transaction.history.clones()]
    return [f"deletion {number} waits for {who}" for who in (*transaction.sessions.waited_for(number), *clones)]


def status_now(parts: Parts) -> Status:
    """The status of a run, once what is due is erased."""
    return status_of(parts, parts.latest.inventory(parts.upkeep.erase_due()))


def status_of(parts: Parts, inventory: Inventory, *, planned: bool = False) -> Status:
    """The status that an inventory makes; `planned`: would make, after a deletion."""
    description, missing = parts.description, inventory.missing()
    present = (
        weak_secret_warning(parts.secret),
        *_open_folders(parts),
        READ_ONLY if parts.ledger.read_only else None,
        *(None if error is None else str(error) for error in (parts.upkeep.elsewhere, parts.upkeep.overdue)),
    )
    with parts.ledger.reading() as transaction:
        unfinished = tuple(transaction.history.unfinished())
        waited_for = _waited_for(transaction, unfinished)
        exports, to_withdraw = tuple(transaction.exports.standing()), tuple(transaction.exports.to_withdraw())
        durations = transaction.history.durations() if missing else {}
        approved = sorted(transaction.held.approved())
    durations = {stage: seconds for stage, seconds in durations.items() if stage in inventory.alive}
    fails = outage(
        inventory,
        trained=parts.latest.snapshot().trained,
        prototypes_alone=parts.recipe.prediction.prototypes_alone,
        planned=planned,
    )
    return Status(
        inventory=inventory,
        outage=fails,
        gaps=description.gaps,
        warnings=(
            *fails,
            *description.warnings,
            *(warning for warning in present if warning is not None),
            *waited_for,
            *parts.withdrawer.warnings(to_withdraw),
            *(_not_carried_out(id, parts.upkeep.not_carried_out.get(id)) for id in approved),
        ),
        missing=len(missing),
        missing_hours=hours_of(missing, durations, costs=parts.recipe.stage_costs),
        unfinished=unfinished,
        exports=exports,
        to_withdraw=to_withdraw,
        ledger=parts.ledger.kind,
        store=parts.store,
        recipe=parts.present_recipe,
        labels=len(description.labels),
    )


def _not_carried_out(id: str, error: S3TError | None) -> str:
    why = "what opens the run next goes on with it" if error is None else f"it is tried again: {error}"
    return f"request {id} for deletion is approved, and not carried out yet; {why}"


def shape_of(parts: Parts) -> str:
    """A run in one line: method, shards, slices, labels, base model. Asks neither the ledger nor the disk."""
    recipe, description = parts.recipe, parts.description
    shape = f"{counted(len(description.orders), 'shard')}, {counted(len(description.orders[0][0]), 'slice')}"
    head = counted(len(description.labels), "label") if description.labels else str(recipe.task)
    return f"{recipe.method.described()}, {shape}, {head}, base model {recipe.base_model}"
