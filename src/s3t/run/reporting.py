"""A run's status, put together from its parts."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Literal

from s3t.bugs import log_failure
from s3t.core import Inventory, Order, Place, Stage, StageCosts, by_kind, stages_of
from s3t.errors import ClosedError, PlanningError
from s3t.ledger import Clone, ExportRow, Transaction
from s3t.ledger.rows import OVERDUE
from s3t.recipe import Recipe
from s3t.results.base import utc
from s3t.results.log import LogEntry
from s3t.results.state import Chain, Export, Forecast, Shard, Status, Worker
from s3t.run.parts import Parts
from s3t.store.disk import open_to
from s3t.store.secret import weak_secret_warning
from s3t.wording import counted, duration

MOMENT_SECONDS = 1.0
"""Time for which every deletion may wait for other processes, without a warning."""
STEPS_A_LABEL = 10
"""Optimiser steps of a stage; fewer are warned of. Measured (`python -m benchmarks.optimiser_steps`), not derived."""
READ_ONLY = (
    "the run is on a file system that is mounted read-only: it answers, and changes nothing. A deletion elsewhere "
    "does not wait for this process, though no answer leaves it that a deletion has overtaken"
)


def inventory_now(parts: Parts) -> Inventory:
    """The inventory of a run, once what is due is erased."""
    return parts.latest.inventory(parts.upkeep.erase_due())


def status_of(parts: Parts, inventory: Inventory, *, full: bool = False) -> Status:
    """The status that an inventory makes; `full`: with the bytes of artifacts, and a forecast."""
    description, recipe, missing = parts.description, parts.present_recipe, inventory.missing()
    to_learn = inventory.to_learn()
    learning = replace(inventory, learned=inventory.added).missing() if to_learn else ()
    with parts.ledger.reading() as transaction:
        unfinished = tuple(transaction.history.unfinished())
        standing, to_withdraw = transaction.exports.standing(), transaction.exports.to_withdraw()
        live = _live_seconds(inventory, transaction) if missing or learning else {}
        hours, learning_hours = (hours_of(each, live, costs=recipe.stage_costs) for each in (missing, learning))
        workers = _workers(parts, inventory, transaction)
        training_seconds = 0.0 if missing else transaction.history.training_seconds()
        warnings = tuple(_warnings(parts, transaction, unfinished, to_withdraw))
    by_slice = enumerate(inventory.by_slice)
    records = {Place(shard, index): count for shard, own in by_slice for index, count in enumerate(own)}
    fails, shards = outage_of(parts, inventory), shards_of(inventory, range(len(inventory.orders)))
    return Status(
        method=recipe.method.described(),
        generation=inventory.generation,
        records=sum(inventory.records.values()),
        to_learn=to_learn,
        learning_hours=learning_hours,
        learned_after=_learned_after(inventory, recipe.additions.learn_every) if to_learn else None,
        alive=len(inventory.alive),
        stored_bytes=parts.store.nbytes((stage.shard, key) for stage, key in inventory.alive.items()) if full else None,
        missing=len(missing),
        missing_hours=hours,
        workers=workers,
        wanted_depth=inventory.wanted_depth,
        shards=shards,
        answering=tuple(sorted(inventory.answering())),
        gaps=description.gaps,
        outage=fails,
        warnings=(*fails, *description.warnings, *warnings),
        advice=(
            *fit(
                recipe,
                sizes_of_stages(recipe, inventory.orders, records),
                records,
                labels=len(description.labels),
                seconds=training_seconds,
            ),
            *_weak(parts.guess, shards),
        ),
        unfinished=unfinished,
        erase_within=recipe.deletion.erase_within,
        exports=exports_of(standing, to_withdraw),
        ledger=parts.ledger.kind,
        store=description.store,
        forecast=forecast_now(inventory, recipe) if full else None,
    )


def _learned_after(inventory: Inventory, every: int | None) -> int | None:
    waiting = inventory.added - inventory.learned  # additions
    if waiting == 0:
        return 0
    return None if every is None else every - waiting


def _warnings(
    parts: Parts, transaction: Transaction, unfinished: Sequence[LogEntry], to_withdraw: Sequence[ExportRow]
) -> Iterator[str]:
    """Warnings of the run's surroundings, and of what is accepted and not done yet."""
    if (weak := weak_secret_warning(parts.secret)) is not None:
        yield weak
    # Files in a folder that other users may not enter are closed to them, whatever their own permissions.
    run, memory = parts.layout.root, parts.witness.path
    if (readers := open_to(run)) is not None:
        yield f"{readers} may enter {run}; if that is not meant, run `chmod -R go-rwx {run}`"
    for path in (memory.parent, memory):
        if path.exists() and (readers := open_to(path)) is not None:
            yield f"{readers} may look into {path}, the memory of deletions; run `chmod -R go-rwx {path}`"
    if parts.ledger.read_only:
        yield READ_ONLY
    yield from (str(error) for error in (parts.upkeep.elsewhere, parts.upkeep.overdue) if error is not None)
    if unfinished and time.time() >= unfinished[0].received_at.timestamp() + MOMENT_SECONDS:
        number = unfinished[0].generation
        clones = (f"the clone in {clone.path}" for clone in transaction.rows.all(Clone))
        for who in (*transaction.sessions.waited_for(number), *clones):
            yield f"deletion {number} waits for {who}"
    yield from parts.withdrawer.warnings(to_withdraw)
    records = sum(state.records for state in transaction.snapshot().slices.values())
    if parts.recipe.retention is not None and (overdue := min(transaction.rows.note(OVERDUE), records)):
        yield (
            f"{counted(overdue, 'record')} older than retention.days allows, too many to go by themselves, stayed; see "
            f"whether the clock is right, then run `s3t expire {parts.layout.root} --max-deletions 1`"
        )
    for id in sorted(transaction.held.approved()):
        error = parts.upkeep.not_carried_out.get(id)
        why = "what opens the run next goes on with it" if error is None else f"it is tried again: {error}"
        yield f"request {id} for deletion is approved, and not carried out yet; {why}"


def shards_of(inventory: Inventory, shards: Iterable[int]) -> tuple[Shard, ...]:
    """Some shards, as an inventory has them."""
    heads, slices, scores = inventory.heads(), range(inventory.slices), inventory.scores or {}
    found = []
    for shard in shards:
        orders, serving = inventory.orders[shard], inventory.serving(shard)
        head = heads[shard].prefix if shard in heads else ()
        planned = (
            Chain(
                order=order,
                depth=inventory.depth(shard, order),
                name=_chain_name(place, inventory.growth.spares),
                seen=inventory.learned,
            )
            for place, order in enumerate(orders)
        )
        ends = inventory.stale_ends(shard)
        earlier = (Chain(order=end.prefix, depth=end.depth, name="earlier", seen=end.seen) for end in ends)
        chains = (*planned, *earlier)
        serves = None
        if serving is not None:
            same = (chain for chain in chains if chain.seen == serving.seen)
            serves = next(chain for chain in same if chain.order[: chain.depth] == serving.prefix)
        if not inventory.trains:
            order = (*head, *(index for index in slices if index not in head))
            chains = (Chain(order=order, depth=len(head), name="head"),)
            serves = chains[0] if head else None
        found.append(
            Shard(
                shard=shard,
                slices=tuple(inventory.by_slice[shard]),
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
    """A warning of shards that do not answer, or, `planned`, would not; or none. It tells nobody which: a caller could
    learn where records lie.
    """
    trained, shards = parts.latest.snapshot().trained, range(len(inventory.orders))
    holding = {shard for shard in shards if inventory.records_in(shard, tuple(range(inventory.slices)))}
    answering = inventory.answering()
    if not holding:
        return (f"the run {'would hold' if planned else 'holds'} no record, so nothing can answer",)
    dead = holding - answering
    command = f"`s3t {inventory.training_command}`"
    if trained and inventory.answering_by_base():
        is_, answers = ("would be", "would answer") if planned else ("is", "answers")
        return (f"no model {is_} alive: the base model {answers}, with a solved head, until {command} trains",)
    until = f"until {command} has trained their stages again"
    if not trained or not dead:  # a run that never had a live stage has not failed
        return ()
    if not answering:
        answers, fails = ("WOULD ANSWER", "would fail") if planned else ("ANSWERS", "fails")
        if inventory.readouts:  # the base model needs no more
            until = f"until {command} has passed through the records"
        return (f"NO SHARD {answers}: every prediction {fails} {until}",)
    do = "would" if planned else "does" if len(dead) == 1 else "do"
    return (f"{len(dead)} of {counted(len(shards), 'shard')} {do} not answer, {until}",)


def _weak(guess: float | None, shards: Iterable[Shard]) -> Iterator[str]:
    """A warning of shards that score no better on the public records than the same answer to all of them."""
    if guess is None:
        return
    if weak := [str(each.shard) for each in shards if each.score is not None and each.score <= guess]:
        yield (
            f"no better on the public records than the same answer to all ({guess:.4g}): shards {', '.join(weak)}; in "
            "a new run take fewer shards or slices, or more epochs; `s3t compare` measures some"
        )


def sizes_of_stages(
    recipe: Recipe, orders: Iterable[Iterable[Order]], records: Mapping[Place, int]
) -> dict[Stage, int]:
    """Records that each stage learns from; those of none are left out."""
    sizes = {}
    for stage in stages_of(orders):
        *before, own = (records[place] for place in stage.places)
        if size := recipe.method.replayed(sum(before)) + own:
            sizes[stage] = size
    return sizes


def short_stages(recipe: Recipe, sizes: Mapping[Stage, int], *, labels: int) -> dict[Stage, int]:
    """Optimiser steps of the stages that take few of them for their labels."""
    training = recipe.training
    steps = {stage: training.epochs * math.ceil(size / training.batch_size) for stage, size in sizes.items()}
    return {stage: count for stage, count in steps.items() if count < STEPS_A_LABEL * labels}


def fit(
    recipe: Recipe, sizes: Mapping[Stage, int], records: Mapping[Place, int], *, labels: int, seconds: float = 0.0
) -> Iterator[str]:
    """Warnings of how a recipe fits records: of empty slices, and of stages that take few optimiser steps for their
    labels. Without labels, `labels` is 0. `seconds` is the time of a training of all stages; 0 where it is not known.
    """
    if empty := sum(count == 0 for count in records.values()):
        yield (
            f"{empty:,} of {counted(len(records), 'slice')} hold no record: use fewer shards or slices, or more "
            "records, in a new run"
        )
    training, wanted = recipe.training, STEPS_A_LABEL * labels
    few = short_stages(recipe, sizes, labels=labels)
    if not few:
        return
    fewest = min(few, key=few.__getitem__)
    epochs = math.ceil(wanted / math.ceil(sizes[fewest] / training.batch_size))
    smaller = (2**power for power in reversed(range(training.batch_size.bit_length())))
    batch = next((size for size in smaller if training.epochs * math.ceil(sizes[fewest] / size) >= wanted), None)
    batches = "" if batch is None else f" or training.batch_size {batch} (now {training.batch_size})"
    longer = ""
    if seconds and training.epochs:
        longer = f"; training then takes about {duration(seconds * epochs / training.epochs)}, not {duration(seconds)}"
    yield (
        f"{len(few)} of {counted(len(sizes), 'stage')} take fewer than {wanted} optimiser steps for {labels} labels "
        f"({fewest}: {few[fewest]}) and may underfit; training.epochs {epochs} (now {training.epochs}{longer})"
        f"{batches} in a new run would do, or have `s3t compare` try smaller systems, and one without training "
        "(method: ridge)"
    )


def missing_hours(
    parts: Parts, inventory: Inventory, missing: Sequence[Stage], transaction: Transaction
) -> float | None:
    """Hours in which one process trains what is missing, by the times of the live stages; None without such times."""
    live = _live_seconds(inventory, transaction) if missing else {}
    return hours_of(missing, live, costs=parts.recipe.stage_costs)


def _live_seconds(inventory: Inventory, transaction: Transaction) -> dict[Stage, float]:
    durations = transaction.history.durations()
    return {stage: seconds for stage, seconds in durations.items() if stage in inventory.alive}


def _workers(parts: Parts, inventory: Inventory, transaction: Transaction) -> tuple[Worker, ...]:
    found, now = transaction.sessions.workers(), time.time()
    live = _live_seconds(inventory, transaction) if found else {}

    def with_time_left(worker: Worker) -> Worker:
        hours = hours_of([worker.stage], live, costs=parts.recipe.stage_costs)
        left = None if hours is None else max(0.0, worker.since.timestamp() + 3600 * hours - now)
        return worker.model_copy(update={"seconds_left": left})

    return tuple(map(with_time_left, found))


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


def shape_of(parts: Parts) -> str:
    """A run in one line: method, shards, slices, labels, base model. Asks neither the ledger nor the disk."""
    recipe, description = parts.recipe, parts.description
    shape = f"{counted(len(description.orders), 'shard')}, {counted(len(description.orders[0][0]), 'slice')}"
    labels = description.labels
    with suppress(ClosedError):
        labels = labels if (now := parts.latest.recent()) is None else parts.labels_at(now)
    head = counted(len(labels), "label") if labels else str(recipe.task)
    return f"{recipe.method.described()}, {shape}, {head}, base model {recipe.base_model}"
