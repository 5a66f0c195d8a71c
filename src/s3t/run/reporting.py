"""A run's status, put together from its parts."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Literal

from s3t.bugs import log_failure
from s3t.core import Inventory, Place, Stage, StageCosts, by_kind
from s3t.errors import PlanningError, S3TError
from s3t.ledger import Clone, ExportRow, Transaction
from s3t.recipe import Recipe
from s3t.results.base import utc
from s3t.results.log import LogEntry
from s3t.results.state import Chain, Export, Forecast, Shard, Status
from s3t.run.advice import empty_slices, few_steps, no_better_than, outage
from s3t.run.parts import Parts
from s3t.store.disk import open_to
from s3t.store.secret import weak_secret_warning
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
    if not unfinished or time.time() < unfinished[0].received_at.timestamp() + MOMENT_SECONDS:
        return []
    number = unfinished[0].generation
    clones = [f"the clone in {clone.path}" for clone in transaction.rows.all(Clone)]
    return [f"deletion {number} waits for {who}" for who in (*transaction.sessions.waited_for(number), *clones)]


def inventory_now(parts: Parts) -> Inventory:
    """The inventory of a run, once what is due is erased."""
    return parts.latest.inventory(parts.upkeep.erase_due())


def status_of(parts: Parts, inventory: Inventory, *, full: bool = False) -> Status:
    """The status that an inventory makes; `full`: with the bytes of artifacts, and a forecast."""
    description, recipe, missing = parts.description, parts.present_recipe, inventory.missing()
    present = (
        weak_secret_warning(parts.secret),
        *_open_folders(parts),
        READ_ONLY if parts.ledger.read_only else None,
        *(None if error is None else str(error) for error in (parts.upkeep.elsewhere, parts.upkeep.overdue)),
    )
    with parts.ledger.reading() as transaction:
        unfinished = tuple(transaction.history.unfinished())
        waited_for = _waited_for(transaction, unfinished)
        standing, to_withdraw = tuple(transaction.exports.standing()), transaction.exports.to_withdraw()
        hours = missing_hours(parts, inventory, missing, transaction)
        approved = sorted(transaction.held.approved())
    fails, shards = outage_of(parts, inventory), shards_of(inventory, range(len(inventory.orders)))
    return Status(
        method=recipe.method.described(),
        generation=inventory.generation,
        records=sum(inventory.records.values()),
        alive=len(inventory.alive),
        stored_bytes=parts.store.nbytes((stage.shard, key) for stage, key in inventory.alive.items()) if full else None,
        missing=len(missing),
        missing_hours=hours,
        wanted_depth=inventory.wanted_depth,
        shards=shards,
        answering=tuple(sorted(inventory.answering())),
        gaps=description.gaps,
        outage=fails,
        warnings=(
            *fails,
            *description.warnings,
            *(warning for warning in present if warning is not None),
            *waited_for,
            *parts.withdrawer.warnings(to_withdraw),
            *(_not_carried_out(id, parts.upkeep.not_carried_out.get(id)) for id in approved),
        ),
        advice=(
            *empty_slices(inventory),
            *few_steps(inventory, recipe, labels=len(description.labels)),
            *no_better_than(parts.guess, shards),
        ),
        unfinished=unfinished,
        erase_within=recipe.deletion.erase_within,
        exports=exports_of(standing, to_withdraw),
        ledger=parts.ledger.kind,
        forecast=forecast_now(inventory, recipe) if full else None,
    )


def shards_of(inventory: Inventory, shards: Iterable[int]) -> tuple[Shard, ...]:
    """Some shards, as an inventory has them."""
    heads, slices, scores = inventory.heads(), range(inventory.slices), inventory.scores or {}
    found = []
    for shard in shards:
        orders, serving = inventory.orders[shard], inventory.serving(shard)
        head = heads[shard].prefix if shard in heads else ()
        chains = tuple(
            Chain(order=order, depth=inventory.depth(shard, order), name=_chain_name(place, inventory.growth.spares))
            for place, order in enumerate(orders)
        )
        serves = next((chain for chain in chains if serving and chain.order[: chain.depth] == serving.prefix), None)
        if not inventory.trains:
            order = (*head, *(index for index in slices if index not in head))
            chains = (Chain(order=order, depth=len(head), name="head"),)
            serves = chains[0] if head else None
        found.append(
            Shard(
                shard=shard,
                slices=tuple(inventory.records[Place(shard, index)] for index in slices),
                sequences=chains,
                serving=serves,
                prototypes=head if head and inventory.of_slices == "prototypes" else None,
                score=None if serving is None else scores.get(inventory.alive[serving]),
            )
        )
    return tuple(found)


def _chain_name(place: int, spares: int | None) -> Literal["", "main", "spare", "other"]:
    if spares is None:
        return ""
    return "main" if place == 0 else "spare" if place <= spares else "other"


def exports_of(rows: Iterable[ExportRow], to_withdraw: Collection[ExportRow]) -> tuple[Export, ...]:
    return tuple(
        Export(
            **row.stage._asdict(),
            name=row.label,
            host=row.host,
            path=row.path,
            made_at=None if row.made_at is None else utc(row.made_at),
            to_withdraw=row in to_withdraw,
        )
        for row in rows
    )


def outage_of(parts: Parts, inventory: Inventory, *, planned: bool = False) -> tuple[str, ...]:
    """A warning of shards that do not answer, or, `planned`, would not; or none."""
    return outage(inventory, trained=parts.latest.snapshot().trained, planned=planned)


def missing_hours(
    parts: Parts, inventory: Inventory, missing: Sequence[Stage], transaction: Transaction
) -> float | None:
    """Hours in which one process trains what is missing, by the times of the live stages; None without such times."""
    durations = transaction.history.durations() if missing else {}
    live = {stage: seconds for stage, seconds in durations.items() if stage in inventory.alive}
    return hours_of(missing, live, costs=parts.recipe.stage_costs)


def hours_of(stages: Iterable[Stage], durations: Mapping[Stage, float], *, costs: StageCosts) -> float | None:
    """Hours in which one process trains some stages, by the times of the run's live ones; None if none is measured.

    `durations` are the seconds that the training of each live stage took. `costs` of stages by depth, L of them, stand
    in for depths without times.
    """
    (models, of_slices), (timed, sums) = by_kind(list(stages)), by_kind(list(durations))
    measured = costs.measured(
        {
            depth: [durations[stage] for stage in timed if len(stage.prefix) == depth and durations[stage] > 0]
            for depth in range(1, costs.slices + 1)
        }
    )
    if (models and measured is None) or (of_slices and not sums):
        return None
    seconds = 0.0 if measured is None else measured.of(stage.prefix for stage in models)
    if of_slices:
        seconds += len(of_slices) * median(durations[stage] for stage in sums)
    return seconds / 3600


def forecast_now(inventory: Inventory, recipe: Recipe) -> Forecast | None:
    """The forecast of an inventory; None if it cannot be computed, since the rest of a status is still wanted then."""
    from s3t.run.forecasting import forecast_of  # here: a deletion reports without it

    try:
        return forecast_of(inventory, recipe)
    except (ArithmeticError, MemoryError, ValueError, PlanningError) as error:
        log_failure(error, command="forecast", level=logging.WARNING)
        return None


def _not_carried_out(id: str, error: S3TError | None) -> str:
    why = "what opens the run next goes on with it" if error is None else f"it is tried again: {error}"
    return f"request {id} for deletion is approved, and not carried out yet; {why}"


def shape_of(parts: Parts) -> str:
    """A run in one line: method, shards, slices, labels, base model. Asks neither the ledger nor the disk."""
    recipe, description = parts.recipe, parts.description
    shape = f"{counted(len(description.orders), 'shard')}, {counted(len(description.orders[0][0]), 'slice')}"
    head = counted(len(description.labels), "label") if description.labels else str(recipe.task)
    return f"{recipe.method.described()}, {shape}, {head}, base model {recipe.base_model}"
