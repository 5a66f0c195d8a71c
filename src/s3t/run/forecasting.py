"""From a run's present state to what it still survives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from s3t.inventory import Inventory
from s3t.partition import Place
from s3t.planning import Deletions, Forecast, forecast
from s3t.sequences import Order


def forecast_of(inventory: Inventory, priors: Sequence[Sequence[float] | None]) -> Forecast:
    """What is to be expected from now on, if nothing is repaired.

    Args:
        inventory: the present state.
        priors: for each shard the declared probabilities of its slices. If one has none, deletions fall on every record
            that is left alike, each once. Slices without records are not hit.
    """
    shards, slices = len(inventory.orders), len(inventory.orders[0][0])
    records = np.array([[inventory.records[Place(shard, index)] for index in range(slices)] for shard in range(shards)])
    declared = [prior for prior in priors if prior is not None]
    likely = np.ones(records.shape) if len(declared) < shards else np.asarray(declared, dtype=np.float64)
    weights = np.where(records > 0, likely, 0.0)
    live = [[_answering(inventory, shard, order) for order in inventory.orders[shard]] for shard in range(shards)]
    if not weights.any():
        return forecast([[] for _ in live], Deletions.uniform(shards, slices))
    if len(declared) < shards:
        return forecast(live, Deletions.from_records(records, replacement=False))
    return forecast(live, Deletions(probabilities=weights / weights.sum()))


def _answering(inventory: Inventory, shard: int, order: Order) -> Order:
    """The live prefix, with the first of its slices that holds a record in front; nothing if none does.

    A prefix answers only if it holds a record, so it is that slice whose loss ends it.
    """
    prefix = order[: inventory.depth(shard, order)]
    holding = [index for index in prefix if inventory.records[Place(shard, index)] > 0]
    return (holding[0], *(index for index in prefix if index != holding[0])) if holding else ()
