"""Simulated forecasts: how many deletions a run survives from its present state, and what more orders add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
from pydantic import BaseModel, Field

from s3t.core import Order
from s3t.orders.setting import Floats, Ints
from s3t.planning.simulation import chunk, fall_times, retention
from s3t.results.state import Forecast, Spread

_TRIALS, _LEAST_TRIALS, _STEPS = 20_000, 500, 20_000_000
"""Most and fewest simulated histories; slices of prefixes that all histories together go through."""
AFTER = (1, 2, 4, 8, 16)
"""Deletions in a shard."""
_GAIN_TRIALS = 20_000
_NO_GAIN = 1e-6
"""Slices; less is rounding."""


def forecast(live: Sequence[Sequence[Order]], weights: Floats, records: Ints, *, in_order: bool = True) -> Forecast:
    """Forecast for a system whose orders are alive as far as given. Every record is deleted once.

    `live` has for each shard the live prefix of every order, empty ones included or not; a shard without any is dead.
    If not `in_order`, it has one, the slices of its head, each of which answers without the others.
    `weights`, m x L, are the probabilities of each slice to be hit by the next deletion, up to a common factor;
    `records` those in each slice, positive where the weight is.
    """
    shards = {shard: sorted({prefix for prefix in prefixes if prefix}) for shard, prefixes in enumerate(live)}
    shards = {shard: prefixes for shard, prefixes in shards.items() if prefixes}
    if not shards:
        return Forecast(next_shard_dies=None, all_shards_die=None, depth_falls_below={}, living_shards=0)
    common = min(max(len(prefix) for prefix in prefixes) for prefixes in shards.values())
    last, *firsts = _simulated(shards, weights / weights.sum(), records, common, in_order=in_order)
    below = dict(enumerate(firsts[1:], start=2))
    return Forecast(
        next_shard_dies=firsts[0][0],
        all_shards_die=last[0],
        depth_falls_below={depth: mean for depth, (mean, _) in below.items()},
        living_shards=len(shards),
        next_shard_dies_between=firsts[0][1],
        all_shards_die_between=last[1],
        depth_falls_below_between={depth: between for depth, (_, between) in below.items()},
    )


def _measured(means: Floats, draws: Floats) -> tuple[float | None, Spread | None]:
    """Mean and percentiles from each history's expected number (N) and a number drawn for it (N)."""
    mean = float(means.sum() / len(means))
    if not np.isfinite(mean):
        return None, None
    low, high = np.quantile(draws, (0.1, 0.9))
    return mean, (float(low), float(high))


def _simulated(
    shards: Mapping[int, Sequence[Order]], chances: Floats, records: Ints, common: int, *, in_order: bool
) -> list[tuple[float | None, Spread | None]]:
    """Deletions until the last shard dies, and until the first one falls below each depth from 1 to `common`."""
    generator, noise = np.random.default_rng(0), np.random.default_rng(1)
    steps = sum(len(prefix) for prefixes in shards.values() for prefix in prefixes)
    trials = int(np.clip(_STEPS // steps, _LEAST_TRIALS, _TRIALS))
    size = chunk(chances.size)
    means, draws = np.empty((1 + common, trials)), np.empty((1 + common, trials))
    for start in range(0, trials, size):
        with np.errstate(divide="ignore"):  # slices that nothing hits are hit infinitely late
            clocks = generator.standard_exponential((min(size, trials - start), *chances.shape)) / chances
        first = np.full((len(clocks), common), np.inf)
        last = np.zeros(len(clocks))
        for shard, prefixes in shards.items():
            own = clocks[:, shard]
            falls = fall_times(prefixes, own) if in_order else -np.sort(-own[:, prefixes[0]], axis=1)
            first = np.minimum(first, falls[:, :common])
            last = np.maximum(last, falls[:, 0])
        for row, times in enumerate((last, *first.T)):
            part = slice(start, start + len(clocks))
            means[row, part], deviation = _deleted_by(times, clocks, chances, records)
            draws[row, part] = np.rint(means[row, part] + deviation * noise.standard_normal(len(clocks))).clip(1)
    return [_measured(*each) for each in zip(means, draws, strict=True)]


def _deleted_by(times: Floats, clocks: Floats, chances: Floats, records: Ints) -> tuple[Floats, Floats | float]:
    """The expected number of deletions up to a time that is the first hit of some slice, N, and its deviation.

    Of every slice that has been hit one record, and each other with the chance that its own clock has rung since.
    """
    if np.isinf(times).any():
        return times, 0.0
    rates = chances / np.maximum(records, 1)
    since = np.maximum(times[:, None, None] - clocks, 0)
    late = np.exp(-rates * since)
    others = np.where(clocks <= times[:, None, None], records - 1, 0)
    rung = (others * -np.expm1(-rates * since)).sum(axis=(1, 2))
    hit = (clocks <= times[:, None, None]).sum(axis=(1, 2))
    return hit + rung, np.sqrt((others * late * (1 - late)).sum(axis=(1, 2)))


class Gain(BaseModel, frozen=True):
    """The expected depth of a shard, mean over the shards, under the current orders and with new ones added.

    Shards count as fully trained: `repair` restores what deletions have cost, with the current orders alone.
    """

    deletions: tuple[int, ...]
    """Numbers of deletions in the shard."""
    before: tuple[float, ...] = Field(serialization_alias="expected_depth_before")
    """Expected depth in slices, for each number of deletions."""
    after: tuple[float, ...] = Field(serialization_alias="expected_depth_after")

    @property
    def is_none(self) -> bool:
        """True if the new orders add no survival at all."""
        return all(new - old < _NO_GAIN for old, new in zip(self.before, self.after, strict=True))


def gain(
    old: Sequence[Sequence[Order]],
    new: Sequence[Sequence[Order]],
    *,
    priors: Sequence[Sequence[float] | None] | None = None,
    deletions: Sequence[int] = AFTER,
) -> Gain:
    """Compare the orders of all shards before and after orders are added.

    `priors` has for each shard the probabilities of its slices; None: uniform.
    """

    @cache  # most shards have the same orders
    def depths(orders: tuple[Order, ...], prior: tuple[float, ...] | None) -> Floats:
        # All on the same simulated histories, so that no gain is due to chance.
        return np.asarray(retention(orders, deletions, prior=prior, trials=_GAIN_TRIALS)[:, 1:].sum(axis=1))

    declared = [None if prior is None else tuple(prior) for prior in priors or [None] * len(old)]
    before, after = (
        np.mean([depths(tuple(orders), prior) for orders, prior in zip(shards, declared, strict=True)], axis=0)
        for shards in (old, new)
    )
    return Gain(deletions=tuple(deletions), before=tuple(before.tolist()), after=tuple(after.tolist()))
