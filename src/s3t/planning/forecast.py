"""What a system that has lost slices still survives, from its present state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.errors import PlanningError
from s3t.planning.deletion_rate import waiting_for
from s3t.planning.deletions import Deletions
from s3t.planning.first_hits import chunk, fall_times
from s3t.planning.quadrature import integral
from s3t.planning.rounding import rounded
from s3t.planning.unions import SignedUnions, prefix_sets, signed_unions
from s3t.sequences import Order

Floats = NDArray[np.float64]

_TERMS = 2**14
_TRIALS, _LEAST_TRIALS, _STEPS = 20_000, 500, 20_000_000
"""Simulated histories, as many as go through so many slices of prefixes in all."""
_REST = 45.0  # e^-45 is nothing


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """Expected numbers of deletions of single records from now on, without repair. None: it never comes to that, or no
    shard is alive."""

    next_shard_dies: float | None
    """Until one more shard has no live prefix."""
    all_shards_die: float | None
    """Until nothing can answer."""
    depth_falls_below: Mapping[int, float | None]
    """For k from 2 to the depth that every live shard has now: until the first of them has fewer than k slices."""
    living_shards: int
    """Shards that have a live prefix now."""
    exact: bool
    """Whether all numbers are computed; else those of `depth_falls_below` are simulated."""

    def to_json(self) -> dict[str, Any]:
        """As `s3t status --json` shows it."""
        document = {
            "next_shard_dies": self.next_shard_dies,
            "all_shards_die": self.all_shards_die,
            "depth_falls_below": {str(depth): value for depth, value in self.depth_falls_below.items()},
            "living_shards": self.living_shards,
            "exact": self.exact,
        }
        return dict(rounded(document, digits=6))  # some are computed to no more


def forecast(live: Sequence[Sequence[Order]], deletions: Deletions, *, seed: int = 0) -> Forecast:
    """What is to be expected of a system whose orders are alive as far as given.

    >>> ahead = forecast([[(0, 1), (1,)]], Deletions.uniform(1, 2))
    >>> ahead.next_shard_dies, round(ahead.depth_falls_below[2], 6)
    (3.0, 1.0)

    Args:
        live: for each shard, the live prefix of every order, empty ones included or not; a shard without any is dead.
        deletions: where they fall, in m shards of L slices.
        seed: of a simulation where no exact sum is short enough.

    Raises:
        PlanningError: prefixes that do not fit the deletions.
    """
    _check(live, deletions)
    shards = {shard: sorted({prefix for prefix in prefixes if prefix}) for shard, prefixes in enumerate(live)}
    shards = {shard: prefixes for shard, prefixes in shards.items() if prefixes}
    if not shards:
        return Forecast(next_shard_dies=None, all_shards_die=None, depth_falls_below={}, living_shards=0, exact=True)
    tops = [sorted({(shard, prefix[0]) for prefix in prefixes}) for shard, prefixes in shards.items()]
    common = min(max(len(prefix) for prefix in prefixes) for prefixes in shards.values())
    exact = {depth: _first_below(shards, deletions, depth) for depth in range(2, common + 1)}
    unknown = [depth for depth, value in exact.items() if value is None]
    found = {depth: value for depth, value in exact.items() if value is not None}
    return Forecast(
        next_shard_dies=_or_never(waiting_for(tops, deletions).mean),
        all_shards_die=_or_never(waiting_for([[cell for cells in tops for cell in cells]], deletions).mean),
        depth_falls_below={
            depth: _or_never(value)
            for depth, value in sorted((found | _simulated(shards, deletions, unknown, seed)).items())
        },
        living_shards=len(shards),
        exact=not unknown,
    )


def _or_never(value: float) -> float | None:
    """At least one deletion: what is computed may fall short of that by the last digits."""
    return max(1.0, value) if math.isfinite(value) else None


def _first_below(shards: Mapping[int, Sequence[Order]], deletions: Deletions, depth: int) -> float | None:
    """E[T] until some shard has no live prefix of `depth` slices, exact; None if the sums are too long, or if records
    run out and are not all alike.

    As in `coupon_collector`: with records' clocks of mean N, E[T] = (1 + 1/N) * the integral over t of
    P(every shard has such a prefix at t) * exp(-t/N), and slices are spared independently, with exp(-p t) each.
    """
    if deletions.records is not None and not deletions.is_uniform_over_records:
        return None
    terms: list[SignedUnions] = []
    fastest = 0.0
    for shard, prefixes in shards.items():
        probabilities = deletions.probabilities[shard]
        member = prefix_sets([prefix for prefix in prefixes if len(prefix) >= depth], depth, deletions.slices)
        masses = member @ probabilities
        if masses.min() == 0:
            continue  # a prefix that nothing can hit: this shard stays as deep
        unions = signed_unions(member, probabilities, terms=_TERMS, keep_full=True)
        if unions is None or unions.rounding > 1e-9:
            return None
        terms.append(unions)
        fastest = max(fastest, masses.min() / (_REST + math.log(len(member))))
    if not terms:
        return math.inf
    scarcity = 0.0 if deletions.records is None else 1 / float(deletions.records.sum())

    def alive(times: Floats) -> Floats:
        chances = np.exp(-times * scarcity)
        for unions in terms:
            chances = chances * (np.exp(-np.outer(times, unions.masses)) @ unions.coefficients)
        return chances

    return (1 + scarcity) * integral(alive, end=1 / fastest, agreement=1e-7)


def _simulated(
    shards: Mapping[int, Sequence[Order]], deletions: Deletions, depths: Sequence[int], seed: int
) -> dict[int, float]:
    """Mean numbers of deletions until some shard falls below each depth."""
    if not depths:
        return {}
    generator = np.random.default_rng(seed)
    steps = sum(len(prefix) for prefixes in shards.values() for prefix in prefixes)
    trials = int(np.clip(_STEPS // steps, _LEAST_TRIALS, _TRIALS))
    size = chunk(deletions.probabilities.size)
    sums = np.zeros(len(depths))
    for start in range(0, trials, size):
        clocks = _clocks(deletions, min(size, trials - start), generator)
        falls = np.min([fall_times(prefixes, clocks[:, shard]) for shard, prefixes in shards.items()], axis=0)
        sums += [_deleted_by(falls[:, depth - 1], clocks, deletions).sum() for depth in depths]
    return dict(zip(depths, (sums / trials).tolist(), strict=True))


def _clocks(deletions: Deletions, trials: int, generator: np.random.Generator) -> Floats:
    """When each slice is first hit, N x m x L, if deletions come at rate 1 at first; infinite for never."""
    with np.errstate(divide="ignore"):
        clocks = generator.standard_exponential((trials, *deletions.probabilities.shape)) / deletions.probabilities
    return np.asarray(clocks)


def _deleted_by(times: Floats, clocks: Floats, deletions: Deletions) -> Floats:
    """The expected number of deletions up to a time that is the first hit of some slice, N.

    With replacement the time itself, for deletions come at rate 1. Without, of every slice that has been hit one
    record, and each other with the chance that its own clock has rung since.
    """
    if deletions.records is None or np.isinf(times).any():
        return times
    rates = deletions.probabilities / np.maximum(deletions.records, 1)
    since = np.maximum(times[:, None, None] - clocks, 0)
    rung = 1 - (deletions.records - 1) * np.expm1(-rates * since)
    return np.asarray(np.where(clocks <= times[:, None, None], rung, 0).sum(axis=(1, 2)))


def _check(live: Sequence[Sequence[Order]], deletions: Deletions) -> None:
    shards, slices = deletions.probabilities.shape
    problems = []
    if len(live) != shards:
        problems.append(f"prefixes are given of {len(live)} shards, deletions in {shards}")
    for shard, prefixes in enumerate(live):
        if any(len(set(prefix)) != len(prefix) or not set(prefix) <= set(range(slices)) for prefix in prefixes):
            problems.append(f"shard {shard} has a prefix that does not name each of its slices once, 0 to {slices - 1}")
    if problems:
        raise PlanningError("the live prefixes", problems)
