"""Forecasts from a run's present state: deletions that it still survives, and the time of a repair."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from s3t.core import Inventory, Order, Stage
from s3t.planning.forecast import forecast
from s3t.recipe import Recipe
from s3t.results.state import Forecast

_NEVER = 1e-15
"""Share of the likeliest slice's probability below which a slice is taken as never hit."""


def forecast_of(inventory: Inventory, recipe: Recipe) -> Forecast:
    """Forecast from now on, without repair.

    Every record that is left is deleted once. Which comes first follows from the recipe. With
    `partition.group`, a record of a group is as likely as the group says. With `sequences.prior`, a slice is, whatever
    number of records it holds. With neither, all records are alike. Forecasts train nothing, so they may count.
    """
    shards = len(inventory.orders)
    records = np.array(inventory.by_slice)
    weights = _weights(records, recipe)
    weights[weights < _NEVER * weights.max()] = 0.0
    live = [[_answering(inventory, end) for end in ends] for ends in inventory.serving_all]
    if not inventory.trains:
        heads = inventory.heads()
        live = [[heads[shard].prefix] if shard in heads else [] for shard in range(shards)]
    return forecast(live if weights.any() else [], weights, records, in_order=inventory.trains)


def _weights(records: NDArray[np.int64], recipe: Recipe) -> NDArray[np.float64]:
    """Probability that the next deletion hits each slice, m x L, up to a common factor."""
    priors = [setting.prior for setting in recipe.settings()]
    if None in priors:
        return records.astype(np.float64)
    declared = np.asarray(priors, dtype=np.float64)
    return declared * (records if recipe.partition.group is not None else records > 0)


def _answering(inventory: Inventory, end: Stage) -> Order:
    """A live prefix, with the first of its slices in front that holds a record: that one's loss ends it."""
    first = next(index for index in end.prefix if inventory.by_slice[end.shard][index] > 0)
    return (first, *(index for index in end.prefix if index != first))
