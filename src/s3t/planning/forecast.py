"""Deletions that a system survives from its present state, simulated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.planning.first_hits import chunk, fall_times
from s3t.planning.rounding import rounded
from s3t.sequences import Order

Floats = NDArray[np.float64]

_TRIALS, _LEAST_TRIALS, _STEPS = 20_000, 500, 20_000_000
"""Most and fewest simulated histories; slices of prefixes that all histories together go through."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Expected numbers of deletions of single records from now on, without repair, simulated. None: it never comes to
    that, or no shard is alive."""

    next_shard_dies: float | None
    """Expected deletions until one more shard has no live prefix."""
    all_shards_die: float | None
    """Expected deletions until no shard can answer."""
    depth_falls_below: Mapping[int, float | None]
    """Expected deletions until the first live shard has fewer than k slices, for k from 2 to their least depth now."""
    living_shards: int
    """Shards that have a live prefix now."""

    def to_json(self) -> dict[str, Any]:
        """The forecast in the document of `s3t status --json`."""
        document = vars(self) | {"depth_falls_below": {str(k): value for k, value in self.depth_falls_below.items()}}
        return dict(rounded(document, digits=4))  # simulated to no more


def forecast(live: Sequence[Sequence[Order]], weights: Floats, records: NDArray[np.int64]) -> Forecast:
    """Forecast for a system whose orders are alive as far as given. Every record is deleted once.

    >>> ahead = forecast([[(0, 1), (1,)]], np.array([[1, 1]]), np.array([[1, 1]]))
    >>> ahead.next_shard_dies, ahead.depth_falls_below
    (2.0, {2: 1.0})

    Args:
        live: for each shard, the live prefix of every order, empty ones included or not; a shard without any is dead.
        weights: probability of each slice to be hit by the next deletion, m x L, up to a common factor.
        records: in each slice, m x L; positive where the weight is.
    """
    shards = {shard: sorted({prefix for prefix in prefixes if prefix}) for shard, prefixes in enumerate(live)}
    shards = {shard: prefixes for shard, prefixes in shards.items() if prefixes}
    if not shards:
        return Forecast(next_shard_dies=None, all_shards_die=None, depth_falls_below={}, living_shards=0)
    common = min(max(len(prefix) for prefix in prefixes) for prefixes in shards.values())
    last, firsts = _simulated(shards, weights / weights.sum(), records, common)
    return Forecast(
        next_shard_dies=firsts[0],
        all_shards_die=last,
        depth_falls_below={depth: firsts[depth - 1] for depth in range(2, common + 1)},
        living_shards=len(shards),
    )


def _simulated(
    shards: Mapping[int, Sequence[Order]], chances: Floats, records: NDArray[np.int64], common: int
) -> tuple[float | None, list[float | None]]:
    """Mean deletions until the last shard dies, and until the first one falls below each depth up to `common`."""
    generator = np.random.default_rng(0)
    steps = sum(len(prefix) for prefixes in shards.values() for prefix in prefixes)
    trials = int(np.clip(_STEPS // steps, _LEAST_TRIALS, _TRIALS))
    size = chunk(chances.size)
    sums = np.zeros(1 + common)
    for start in range(0, trials, size):
        with np.errstate(divide="ignore"):  # slices that nothing hits are hit infinitely late
            clocks = generator.standard_exponential((min(size, trials - start), *chances.shape)) / chances
        first = np.full((len(clocks), common), np.inf)
        last = np.zeros(len(clocks))
        for shard, prefixes in shards.items():
            falls = fall_times(prefixes, clocks[:, shard])
            first = np.minimum(first, falls[:, :common])
            last = np.maximum(last, falls[:, 0])
        sums += [_deleted_by(times, clocks, chances, records).sum() for times in (last, *first.T)]
    means = [float(mean) if np.isfinite(mean) else None for mean in sums / trials]
    return means[0], means[1:]


def _deleted_by(times: Floats, clocks: Floats, chances: Floats, records: NDArray[np.int64]) -> Floats:
    """The expected number of deletions up to a time that is the first hit of some slice, N.

    Of every slice that has been hit one record, and each other with the chance that its own clock has rung since.
    """
    if np.isinf(times).any():
        return times
    rates = chances / np.maximum(records, 1)
    since = np.maximum(times[:, None, None] - clocks, 0)
    rung = 1 - (records - 1) * np.expm1(-rates * since)
    return np.asarray(np.where(clocks <= times[:, None, None], rung, 0).sum(axis=(1, 2)))
