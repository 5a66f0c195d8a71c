"""Bounds that need no simulation: the paper's Lemma 1, and costs of repair as needed and of any policy.

All hold for uniform deletions; `least_cost` and `full_budget_depth` for any prior.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from s3t.core import AsNeeded, Order, StageCosts
from s3t.orders.setting import Floats


def harmonic(number: int) -> float:
    """1 + 1/2 + ... + 1/number."""
    return math.fsum(1 / index for index in range(1, number + 1))


def paper_bound(shards: int, slices: int, budget: int) -> float:
    """Lemma 1: mL H(m min(B, L)) deletions until every shard is dead, expected; exact for uniform deletions.

    >>> [round(paper_bound(5, 6, budget), 1) for budget in (1, 2, 6, 7)]
    [68.5, 87.9, 119.8, 119.8]
    """
    return shards * slices * harmonic(shards * min(budget, slices))


def first_failure(shards: int, slices: int, tops: int) -> float:
    """Expected deletions until some shard has lost all its top slices.

    If deletions come at rate 1, slices are hit independently: the chance that no shard has is (1 - x^tops)^shards,
    with x the chance that one slice is. Its integral over time is a sum of beta functions.
    """
    from scipy.special import beta

    return float(shards * slices / tops * beta(np.arange(1, tops + 1) / tops, shards).sum())


def full_budget_depth(deletions: Sequence[int], prior: Sequence[float]) -> Floats:
    """The expected depth of a shard after r deletions in it with all L! orders, which no budget exceeds: R numbers.

    Then all slices that have not been hit make a prefix. Their expected number is the sum of (1 - p)^r.
    """
    spared = (1 - np.asarray(prior))[None, :] ** np.asarray(deletions)[:, None]
    return np.asarray(spared.sum(axis=1))


def cost_of_a_hit(policy: AsNeeded, costs: StageCosts) -> float:
    """Expected cost of the repair after a hit of a shard. Exact, after however many hits.

    After a repair the main chain has its depth and every spare its own, for the longest of what a hit leaves becomes
    the main chain. Chains share no stage. A stage of depth k is lost with a chance of k / L, and then trained again.
    """
    lost = [depth * cost for depth, cost in enumerate(costs.by_depth, start=1)]
    return (math.fsum(lost[: policy.depth]) + policy.spares * math.fsum(lost[: policy.spare_depth])) / costs.slices


def least_cost(costs: StageCosts, mean_depth: float, *, chances: Sequence[float] | None = None) -> float:
    """Least cost of repairs for each hit of a shard, whatever is trained, at a mean depth of 0 to L slices.

    A stage of depth k lives until one of its k slices is hit: for 1 / q hits in the mean, where q is at least the sum
    of the k least chances. By Little's law, where a share p of the time some stage of depth k is alive, at least p q
    of them are trained for each hit. A mean depth is reached at least cost by serving one or two depths.

    One chain that is grown again after every hit reaches the bound, and is dead after each hit of its first slice.

    `chances` are those of each slice to be the next that is hit, L, adding up to 1; None: all are alike.
    """
    slices = costs.slices
    each = np.full(slices, 1 / slices) if chances is None else np.sort(np.asarray(chances, dtype=np.float64))
    always = np.concatenate([[0.0], np.cumsum(np.cumsum(each) * costs.by_depth)])
    """Cost of serving each depth all the time."""
    pairs = [(low, high) for low in range(slices + 1) for high in range(low, slices + 1) if low <= mean_depth <= high]
    return float(min(np.interp(mean_depth, pair, always[list(pair)]) for pair in pairs))


def least_after_deletion(orders: Sequence[Order], below: int) -> int:
    """Slices that serve right after any one deletion, at least, if shards with fewer than `below` are repaired.

    The worst that is not repaired yet: all slices were hit but the first `below` of one order, 1 to L. A hit of one of
    these leaves what begins other orders without it.
    """
    return min(
        max(_alive(order, set(kept[:below]) - {hit}) for order in orders) for kept in orders for hit in kept[:below]
    )


def _alive(order: Order, unhit: set[int]) -> int:
    return next((place for place, index in enumerate(order) if index not in unhit), len(order))
