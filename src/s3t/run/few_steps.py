"""A warning where stages take few optimiser steps for their labels.

Computed when it is asked for and never kept: it follows from how many records the slices hold.
"""

from __future__ import annotations

from s3t.inventory import Inventory
from s3t.planning import optimiser_steps, steps_wanted
from s3t.recipe import Recipe
from s3t.stages import stages_of
from s3t.wording import counted


def few_steps(inventory: Inventory, recipe: Recipe, *, labels: int) -> tuple[str, ...]:
    """The warning, or none.

    Args:
        inventory: the orders, and the records of the slices.
        recipe: epochs, batch size, and how much of earlier slices a stage sees again.
        labels: how many there are; 0 where the task has none.
    """
    training, wanted = recipe.training, steps_wanted(labels)
    steps = {}
    for stage in stages_of(inventory.orders):
        before = round(recipe.method.replay * inventory.records_in(stage.shard, stage.prefix[:-1]))
        if records := before + inventory.records_in(stage.shard, stage.prefix[-1:]):
            steps[stage] = optimiser_steps(records, epochs=training.epochs, batch_size=training.batch_size)
    few = [stage for stage, count in steps.items() if count < wanted]
    if not few:
        return ()
    fewest = min(few, key=steps.__getitem__)
    return (
        f"{len(few)} of {counted(len(steps), 'stage')} take fewer than {wanted} optimiser steps for {labels} labels "
        f"({fewest}: {steps[fewest]}) and may underfit; raise training.epochs, now {training.epochs}, or lower "
        f"training.batch_size, now {training.batch_size}, in a new run",
    )
