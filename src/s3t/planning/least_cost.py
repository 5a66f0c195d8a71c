"""A lower bound of what repairs cost at a mean depth, for any policy and any number of slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from s3t.errors import PlanningError
from s3t.forests import StageCosts


def least_cost(costs: StageCosts, mean_depth: float, *, chances: Sequence[float] | None = None) -> float:
    """Least cost of repairs for each hit of a shard, whatever is trained, at a mean depth.

    A stage of depth k lives until one of its k slices is hit: for 1 / q hits in the mean, where q is at least the sum
    of the k least chances. By Little's law, where a share p of the time some stage of depth k is alive, at least p q
    of them are trained for each hit. A mean depth is reached at least cost by serving one or two depths.

    One chain that is grown again after every hit reaches the bound, and is dead after each hit of its first slice.

    >>> least_cost(StageCosts((1.0, 1.0, 1.0, 1.0)), 2)  # depth 1: a quarter; depth 2: two quarters
    0.75

    Args:
        mean_depth: slices that serve, 0 to L.
        chances: of each slice to be the next that is hit, L, adding up to 1; None: all are alike.
    """
    slices = costs.slices
    if not 0 <= mean_depth <= slices:
        raise PlanningError("the mean depth", f"{mean_depth}: a shard has 0 to {slices} slices")
    each = np.full(slices, 1 / slices) if chances is None else np.sort(np.asarray(chances, dtype=np.float64))
    if len(each) != slices:
        raise PlanningError("the chances", f"{len(each)} of them for {slices} slices")
    always = np.concatenate([[0.0], np.cumsum(np.cumsum(each) * costs.by_depth)])
    """Cost of serving each depth all the time."""
    pairs = [(low, high) for low in range(slices + 1) for high in range(low, slices + 1) if low <= mean_depth <= high]
    return float(min(_between(always, low, high, mean_depth) for low, high in pairs))


def _between(always: np.ndarray, low: int, high: int, depth: float) -> float:
    share = (depth - low) / (high - low) if high > low else 0.0
    return float((1 - share) * always[low] + share * always[high])
