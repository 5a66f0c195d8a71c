"""The sets of slices that r deletions hit, all of them or a sample; and the paper's score of an order.

A deletion falls on slice i with probability p_i, each independently of the others (the data is large against the
deletions). The choice of orders uses only sums, products and comparisons in a fixed order, and raw bits of PCG64. So it
is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from s3t.core import Order

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ENUMERATED_SLICES = 12
"""Largest number of slices of which all 2^L sets are listed."""


@dataclass(frozen=True, kw_only=True)
class Hits:
    """Sets of hit slices, each with its weight."""

    slices: Ints
    """N x H, the distinct slices hit in each set; places that are not needed hold L."""
    counts: Ints
    """N, how many are hit."""
    weights: Floats
    """N, adding up to 1."""

    def depths(self, order: Order) -> Ints:
        """Slices of the order before the first that was hit, in each set: N numbers, 0..L."""
        positions = np.empty(len(order) + 1, dtype=np.int16)  # there are at most 10,000 slices
        positions[list(order)] = np.arange(len(order))
        positions[-1] = len(order)
        return np.asarray(positions.take(self.slices.T).min(axis=0), dtype=np.int64)


def hits_over(horizon: Sequence[int], probabilities: Sequence[float], *, samples: int, seed: int) -> Hits:
    """Sets of slices hit after r deletions, with each r of the horizon equally likely.

    Listed in full are L <= 12, and r = 1 and 2 where that is less; of others there are `samples`.
    """
    slices = len(probabilities)
    parts = [_hits_after(deletions, np.asarray(probabilities), samples, seed) for deletions in horizon]
    sizes = [len(part.counts) for part in parts]
    columns = np.full((max(part.slices.shape[1] for part in parts), sum(sizes)), slices)
    for part, end in zip(parts, np.cumsum(sizes), strict=True):
        columns[: part.slices.shape[1], end - len(part.counts) : end] = part.slices.T
    whole = Hits(
        slices=columns.T,  # column by column in memory, for `depths`
        counts=np.concatenate([part.counts for part in parts]),
        weights=np.concatenate([part.weights / len(parts) for part in parts]),
    )
    return _merged(whole) if slices <= ENUMERATED_SLICES else whole


def uniforms(count: int, seed: int) -> Floats:
    """Numbers in [0, 1) from raw bits: the same whatever numpy's version."""
    raw = np.random.PCG64(seed).random_raw(count)
    return np.asarray((raw >> np.uint64(11)) * 2.0**-53)


def _hits_after(deletions: int, probabilities: Floats, samples: int, seed: int) -> Hits:
    slices = len(probabilities)
    if slices <= ENUMERATED_SLICES:
        return _listed(deletions, probabilities)
    if deletions == 1:
        return Hits(slices=np.arange(slices)[:, None], counts=np.ones(slices, dtype=np.int64), weights=probabilities)
    if deletions == 2 and slices * (slices + 1) // 2 <= 4 * samples:
        first, second = np.triu_indices(slices)
        chances = probabilities[first] * probabilities[second]
        same = first == second
        pairs = np.stack([first, np.where(same, slices, second)], axis=1)
        return Hits(slices=pairs, counts=np.where(same, 1, 2), weights=np.where(same, chances, 2 * chances))
    steps = np.cumsum(probabilities)
    points = uniforms(samples * deletions, seed + deletions) * steps[-1]
    drawn = np.minimum(np.searchsorted(steps, points, side="right"), slices - 1)
    draws = np.sort(drawn.reshape(samples, deletions), axis=1)
    repeated = np.zeros_like(draws, dtype=bool)
    repeated[:, 1:] = draws[:, 1:] == draws[:, :-1]
    distinct = np.sort(np.where(repeated, slices, draws), axis=1)[:, : min(deletions, slices)]
    counts = (distinct < slices).sum(axis=1)
    return Hits(slices=distinct, counts=counts, weights=np.full(samples, 1 / samples))


def _listed(deletions: int, probabilities: Floats) -> Hits:
    """All non-empty sets, with their probabilities.

    P[the hit ones are S] is the inclusion-exclusion over S of P[all hits lie in T] = p(T)^r.
    """
    slices = len(probabilities)
    inside = np.zeros(1)
    for chance in probabilities:
        inside = np.concatenate([inside, inside + chance])
    chances = power(inside, deletions).reshape((2,) * slices)
    for axis in range(slices):
        low, high = np.split(chances, 2, axis=axis)
        chances = np.concatenate([low, high - low], axis=axis)
    numbers = np.arange(1, 2**slices)
    member = (numbers[:, None] >> np.arange(slices)) & 1 == 1
    width = min(deletions, slices)
    counts = member.sum(axis=1)
    possible = counts <= width
    named = np.sort(np.where(member, np.arange(slices), slices), axis=1)[:, :width]
    weights = np.maximum(chances.reshape(-1)[1:], 0)
    return Hits(slices=named[possible], counts=counts[possible], weights=weights[possible])


def _merged(hits: Hits) -> Hits:
    """Each set once."""
    rows, first, group = np.unique(hits.slices, axis=0, return_index=True, return_inverse=True)
    weights = np.zeros(len(rows))
    np.add.at(weights, group.reshape(-1), hits.weights)
    return Hits(slices=np.asfortranarray(rows), counts=hits.counts[first], weights=weights)


def scores(orders: Sequence[Order], probabilities: Sequence[float], deletions: int) -> Floats:
    """Each order's score: the sum over i of i * (1 - p_1 - ... - p_i)^t (paper, Section 3.3 and Appendix B.2).

    p_i is the probability of the i-th slice of the order.

    >>> scores([(2, 1, 0)], (0.5, 0.4, 0.1), 1).round(6).tolist()
    [1.9]
    """
    lost = np.cumsum(np.asarray(probabilities)[np.asarray(orders)], axis=1)
    depth = np.arange(1, lost.shape[1] + 1)
    return np.asarray((depth * power(np.maximum(1 - lost, 0), deletions)).sum(axis=1))


def power(base: Floats, exponent: int) -> Floats:
    """Integer power by repeated squaring: products alone, so the same bits on every machine (libm's pow differs)."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base = base * base
        exponent >>= 1
    return result


def mean_distance(orders: Sequence[Order]) -> float:
    """Mean Hamming distance over all pairs of orders: positions at which they differ, 0..L; 0 for a single order.

    >>> mean_distance([(0, 1, 2), (1, 2, 0), (0, 2, 1)])
    2.3333333333333335
    """
    if len(orders) < 2:
        return 0.0
    columns = np.asarray(orders)
    slices = columns.shape[1]
    pairs = len(orders) * (len(orders) - 1) // 2
    agreeing = 0
    for position in range(slices):
        counts = np.bincount(columns[:, position], minlength=slices)
        agreeing += int((counts * (counts - 1) // 2).sum())
    return float(slices - agreeing / pairs)
