"""Forecasts from a run's present state: deletions that it still survives, and the time of a repair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

import numpy as np
from numpy.typing import NDArray

from s3t.core import Inventory, Order, Place, Stage, StageCosts, by_kind
from s3t.planning.forecast import Forecast, forecast
from s3t.recipe import Recipe

_NEVER = 1e-15
"""Share of the likeliest slice's probability below which a slice is taken as never hit."""


def forecast_of(inventory: Inventory, recipe: Recipe) -> Forecast:
    """Forecast from now on, without repair.

    Every record that is left is deleted once. Which comes first follows from the recipe. With
    `partition.group`, a record of a group is as likely as the group says. With `sequences.prior`, a slice is, whatever
    number of records it holds. With neither, all records are alike. Forecasts train nothing, so they may count.
    """
    shards, slices = len(inventory.orders), inventory.slices
    records = np.array([[inventory.records[Place(shard, index)] for index in range(slices)] for shard in range(shards)])
    weights = _weights(records, recipe)
    weights[weights < _NEVER * weights.max()] = 0.0
    live = [[_answering(inventory, shard, order) for order in inventory.orders[shard]] for shard in range(shards)]
    return forecast(live if weights.any() else [], weights, records)


def hours_of(stages: Iterable[Stage], durations: Mapping[Stage, float], *, costs: StageCosts) -> float | None:
    """Hours in which one process trains some stages, by the times of the run's live ones; None if none is measured.

    `durations` are the seconds that the training of each live stage took. `costs` of stages by depth, L of them, stand
    in for depths without times.
    """
    (models, prototypes), (timed, classes) = by_kind(list(stages)), by_kind(list(durations))
    measured = costs.measured(
        {
            depth: [durations[stage] for stage in timed if len(stage.prefix) == depth and durations[stage] > 0]
            for depth in range(1, costs.slices + 1)
        }
    )
    if (models and measured is None) or (prototypes and not classes):
        return None
    seconds = 0.0 if measured is None else measured.of(stage.prefix for stage in models)
    if prototypes:
        seconds += len(prototypes) * median(durations[stage] for stage in classes)
    return seconds / 3600


def _weights(records: NDArray[np.int64], recipe: Recipe) -> NDArray[np.float64]:
    """Probability that the next deletion hits each slice, m x L, up to a common factor."""
    priors = [setting.prior for setting in recipe.settings()]
    if None in priors:
        return records.astype(np.float64)
    declared = np.asarray(priors, dtype=np.float64)
    return declared * (records if recipe.partition.group is not None else records > 0)


def _answering(inventory: Inventory, shard: int, order: Order) -> Order:
    """The live prefix, with the first of its slices that holds a record in front; empty if none does.

    A prefix answers only if it holds a record, so it is that slice whose loss ends it.
    """
    prefix = order[: inventory.depth(shard, order)]
    holding = [index for index in prefix if inventory.records[Place(shard, index)] > 0]
    return (holding[0], *(index for index in prefix if index != holding[0])) if holding else ()
