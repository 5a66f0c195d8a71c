"""Times of slices' first hits and of prefixes' falls: the raw material of every simulation. With replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from s3t.sequences import Order

Times = NDArray[np.int64]
NEVER = np.iinfo(np.int64).max
"""The time of what cannot happen, or only beyond all counting (2^62)."""

Moment = TypeVar("Moment", np.int64, np.float64)

_CHUNK, _CHUNK_CELLS = 5_000, 4_000_000
_RARE = 1e-9


def chunk(cells: int) -> int:
    """Number of histories of `cells` cells to draw at once: their arrays take a few hundred megabytes.

    >>> chunk(160), chunk(10_000)
    (5000, 400)
    """
    return max(1, min(_CHUNK, _CHUNK_CELLS // cells))


def first_hits(probabilities: NDArray[np.float64], *, trials: int, generator: np.random.Generator) -> Times:
    """The number of the deletion that first hits each cell, counted from 1.

    Deletions that hit nothing new are not drawn one by one. The order in which cells are first hit is that of
    independent exponential clocks. A geometric number of deletions passes between two first hits.

    Args:
        probabilities: probability of each of C cells; the rest up to 1 falls elsewhere.

    Returns:
        N x C; `NEVER` where the probability is 0.
    """
    cells = np.flatnonzero(probabilities)
    chances = probabilities[cells]
    with np.errstate(over="ignore"):  # infinitely late is late enough
        clocks = generator.standard_exponential((trials, len(cells))) / chances
    order = np.argsort(clocks, axis=1)
    # What is left to be hit, summed from its far end, where it is small; the same for all if cells are alike.
    alike = bool((chances == chances[0]).all())
    remaining = np.cumsum(chances[order[:1] if alike else order][:, ::-1], axis=1)[:, ::-1]
    waits = generator.geometric(np.minimum(remaining, 1.0), size=order.shape)
    passed = np.cumsum(waits, axis=1)
    if chances.min() < _RARE:  # the sum may be too large
        passed[np.cumsum(waits.astype(np.float64), axis=1) > 2.0**62] = NEVER
    times = np.full((trials, len(probabilities)), NEVER, dtype=np.int64)
    np.put_along_axis(times, cells[order], passed, axis=1)
    return times


def fall_times(orders: Sequence[Order], hits: NDArray[Moment]) -> NDArray[Moment]:
    """Times at which a shard's depth falls below k: the first hit of the last of its prefixes of k slices.

    Args:
        orders: B orders of L slices, or prefixes of some.
        hits: N x L, when each slice is first hit: numbers of deletions, or times.

    Returns:
        N x L; column k-1 is when no prefix of k slices is left; 0 where there is none at first.
    """
    hit_rows = np.ascontiguousarray(hits.T)  # a row a slice: all histories of a step lie side by side
    last = np.zeros_like(hit_rows)
    for order in orders:
        falls = hit_rows[order[0]].copy()
        for depth, index in enumerate(order):
            np.minimum(falls, hit_rows[index], out=falls)
            np.maximum(last[depth], falls, out=last[depth])
    return last.T
