"""Warnings of how a recipe fits the records that are present. Computed on demand, never stored."""

from __future__ import annotations

import math
from collections.abc import Iterable

from s3t.core import Inventory, stages_of
from s3t.recipe import Recipe
from s3t.results.state import Shard
from s3t.wording import counted

STEPS_A_LABEL = 10
"""Optimiser steps of a stage; fewer are warned of. Measured (`python -m benchmarks.optimiser_steps`), not derived."""


def outage(inventory: Inventory, *, trained: bool, planned: bool) -> tuple[str, ...]:
    """A warning of shards that do not answer, or none. It tells nobody which: a caller could learn where records lie.

    `trained`: the run once had a live stage; else it has not failed. With `planned`, it is a forecast.
    """
    shards = range(len(inventory.orders))
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
    if not trained or not dead:
        return ()
    if not answering:
        answers, fails = ("WOULD ANSWER", "would fail") if planned else ("ANSWERS", "fails")
        if inventory.readouts:  # the base model needs no more
            until = f"until {command} has passed through the records"
        return (f"NO SHARD {answers}: every prediction {fails} {until}",)
    do = "would" if planned else "does" if len(dead) == 1 else "do"
    return (f"{len(dead)} of {counted(len(shards), 'shard')} {do} not answer, {until}",)


def empty_slices(inventory: Inventory) -> tuple[str, ...]:
    empty = sum(count == 0 for count in inventory.records.values())
    if not empty:
        return ()
    return (
        f"{empty:,} of {counted(len(inventory.records), 'slice')} hold no record: use fewer shards or slices, or more "
        "records, in a new run",
    )


def no_better_than(guess: float | None, shards: Iterable[Shard]) -> tuple[str, ...]:
    """A warning of shards that score no better on the public records than the same answer to all of them, or none."""
    if guess is None:
        return ()
    weak = [str(each.shard) for each in shards if each.score is not None and each.score <= guess]
    if not weak:
        return ()
    return (
        f"no better on the public records than the same answer to all ({guess:.4g}): shards {', '.join(weak)}; in a "
        "new run take fewer shards or slices, or more epochs; `s3t compare` measures some",
    )


def few_steps(inventory: Inventory, recipe: Recipe, *, labels: int) -> tuple[str, ...]:
    """A warning where stages take few optimiser steps for their labels, or none. Without labels, `labels` is 0."""
    training, wanted = recipe.training, STEPS_A_LABEL * labels
    steps, sizes = {}, {}
    for stage in stages_of(inventory.orders):
        before = recipe.method.replayed(inventory.records_in(stage.shard, stage.prefix[:-1]))
        if records := before + inventory.records_in(stage.shard, stage.prefix[-1:]):
            steps[stage], sizes[stage] = training.epochs * math.ceil(records / training.batch_size), records
    few = [stage for stage, count in steps.items() if count < wanted]
    if not few:
        return ()
    fewest = min(few, key=steps.__getitem__)
    epochs = math.ceil(wanted / math.ceil(sizes[fewest] / training.batch_size))
    smaller = (2**power for power in reversed(range(training.batch_size.bit_length())))
    batch = next((size for size in smaller if training.epochs * math.ceil(sizes[fewest] / size) >= wanted), None)
    batches = "" if batch is None else f" or training.batch_size {batch} (now {training.batch_size})"
    return (
        f"{len(few)} of {counted(len(steps), 'stage')} take fewer than {wanted} optimiser steps for {labels} labels "
        f"({fewest}: {steps[fewest]}) and may underfit; training.epochs {epochs} (now {training.epochs}){batches} in a "
        "new run would do, or have `s3t compare` try smaller systems, and one without training (method: ridge)",
    )
