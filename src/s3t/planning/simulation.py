"""Monte Carlo of systems of m shards of L slices: how deep they stay without repair, and what repairs cost.

Without repair a history is the times at which slices are first hit. With repairs all simulated systems take a step, a
deletion, at once. The state of a shard is a small array: for each of its chains the slices that are left. Orders are
chains that a repair trains to their end; what `Growth` does to chains, tests compare state by state.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, Field, PlainSerializer
from pydantic.json_schema import SkipJsonSchema

from s3t.core import AsNeeded, FixedOrders, Forests, Order, Stage, StageCosts
from s3t.core.growth import leaves, without
from s3t.orders.setting import Floats, Ints
from s3t.planning.bounds import paper_bound

Small: TypeAlias = NDArray[np.int16]
Moment = TypeVar("Moment", np.int64, np.float64)
Orders: TypeAlias = Sequence[Sequence[Order]]
"""Orders, or chains, of each shard."""

Shown = Annotated[float, PlainSerializer(lambda value: float(f"{value:.9g}"), when_used="json")]
"""A number that documents show with nine digits; sums of floats are not exact beyond."""
NEVER = np.iinfo(np.int64).max
"""The time of what cannot happen, or only beyond all counting (2^62)."""
QUANTILES = (0.05, 0.5, 0.95)
_CHUNK, _CHUNK_CELLS = 5_000, 4_000_000
_RARE = 1e-9
_HITS, _SHARDS_AT_ONCE = 2000, 100
_POWERS = 31


@dataclass(frozen=True, kw_only=True, eq=False)
class Deletions:
    """The distribution of deletion requests over a system of m shards of L slices.

    A slice can be hit any number of times (sampling with replacement: far more records than deletions).
    """

    probabilities: Floats
    """m x L, probability of each slice to be hit by the next deletion; they sum to 1."""

    def __post_init__(self) -> None:
        probabilities = np.asarray(self.probabilities)
        object.__setattr__(self, "probabilities", probabilities / math.fsum(probabilities.flat))

    @property
    def shards(self) -> int:
        return int(self.probabilities.shape[0])

    @property
    def slices(self) -> int:
        return int(self.probabilities.shape[1])

    @classmethod
    def uniform(cls, shards: int, slices: int) -> Deletions:
        """Every slice equally likely, with replacement (the paper's assumption)."""
        return cls(probabilities=np.full((shards, slices), 1 / (shards * slices)))

    @classmethod
    def from_prior(cls, prior: ArrayLike, *, shards: int) -> Deletions:
        """L probabilities that hold in every shard, or m rows of L; each row sums to 1, shards are equally likely.

        >>> Deletions.from_prior([0.75, 0.25], shards=2).probabilities.tolist()
        [[0.375, 0.125], [0.375, 0.125]]
        """
        rows = np.atleast_2d(np.asarray(prior, dtype=np.float64))
        spread = rows / np.array([[math.fsum(row)] for row in rows]) / shards
        return cls(probabilities=np.broadcast_to(spread, (shards, rows.shape[1])))


def chunk(cells: int) -> int:
    """Number of histories of `cells` cells to draw at once: their arrays take a few hundred megabytes."""
    return max(1, min(_CHUNK, _CHUNK_CELLS // cells))


def first_hits(probabilities: Floats, *, trials: int, generator: np.random.Generator) -> Ints:
    """The number of the deletion that first hits each of C cells, counted from 1: N x C; `NEVER` where the probability
    is 0. What the probabilities leave up to 1 falls elsewhere.

    Deletions that hit nothing new are not drawn one by one. The order in which cells are first hit is that of
    independent exponential clocks. A geometric number of deletions passes between two first hits.
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

    `orders` have L slices, or are prefixes. `hits`, N x L, are when each slice is first hit: numbers of deletions, or
    times. Returned is N x L; column k-1 is when no prefix of k slices is left, 0 where there is none at first.
    """
    hit_rows = np.ascontiguousarray(hits.T)  # a row a slice: all histories of a step lie side by side
    last = np.zeros_like(hit_rows)
    for order in orders:
        falls = hit_rows[order[0]].copy()
        for depth, index in enumerate(order):
            np.minimum(falls, hit_rows[index], out=falls)
            np.maximum(last[depth], falls, out=last[depth])
    return last.T


@dataclass(frozen=True, kw_only=True, eq=False)
class Falls:
    """N simulated systems of m shards of L slices, without repair."""

    falls: Ints
    """N x m x L; [n, s, k-1] is the deletion, counted over the whole system, after which shard s of system n is less
    than k slices deep; `NEVER` if it never is."""

    @property
    def deletion_rate(self) -> Ints:
        """N numbers of deletions until every shard was dead; their mean is the paper's deletion rate."""
        return np.asarray(self.falls[:, :, 0].max(axis=1))

    @property
    def first_failure(self) -> Ints:
        """N numbers of deletions until the first shard was dead."""
        return np.asarray(self.falls[:, :, 0].min(axis=1))

    @property
    def settled(self) -> Ints:
        """N numbers: after this deletion the depth of no shard changes any more. The deletion rate, unless a shard
        lives for ever."""
        return np.asarray(self.falls.max(axis=(1, 2), initial=0, where=self.falls != NEVER))

    def retained(self, deletions: Sequence[int]) -> Floats:
        """R x (L + 1): the share of shards that are at least k slices deep, k from 0, after r deletions in the system.

        The r's are in ascending order. The sum over k from 1 is the expected depth.
        """
        trials, shards, slices = self.falls.shape
        survival = np.ones((len(deletions), slices + 1))
        for depth in range(1, slices + 1):
            # Into which gap between two r's each fall comes; one at r is a loss already at r.
            gaps = np.searchsorted(deletions, self.falls[:, :, depth - 1].reshape(-1))
            lost = np.bincount(gaps, minlength=len(deletions) + 1)[: len(deletions)].cumsum()
            survival[:, depth] = 1 - lost / (trials * shards)
        return survival


def simulate(orders: Orders, deletions: Deletions, *, trials: int = 10_000, seed: int = 0) -> Falls:
    """Simulate systems from full depth until every shard is dead. Deletions fall with replacement (N >> r)."""
    falls, end = np.empty((trials, deletions.shards, deletions.slices), dtype=np.int64), 0
    for part in _histories(orders, deletions, trials, seed):
        falls[end : end + len(part)] = part
        end += len(part)
    return Falls(falls=falls)


def _histories(orders: Orders, deletions: Deletions, trials: int, seed: int) -> Iterator[Ints]:
    """Falls of so many systems, a few at a time: n x m x L."""
    shards, slices = deletions.probabilities.shape
    generator, step = np.random.default_rng(seed), chunk(shards * slices)
    for start in range(0, trials, step):
        count = min(step, trials - start)
        hits = first_hits(deletions.probabilities.reshape(-1), trials=count, generator=generator)
        of_shards = hits.reshape(count, shards, slices)
        yield np.stack([fall_times(chosen, of_shards[:, shard]) for shard, chosen in enumerate(orders)], axis=1)


def retention(
    orders: Sequence[Order],
    after: Sequence[int],
    *,
    prior: Sequence[float] | None = None,
    trials: int = 100_000,
    seed: int = 0,
) -> Floats:
    """R x (L + 1): probability that a shard is at least k slices deep, k from 0, after r deletions in it."""
    slices = len(orders[0])
    deletions = Deletions.uniform(1, slices) if prior is None else Deletions.from_prior(prior, shards=1)
    spared = np.zeros((len(after), slices))
    for falls in _histories([orders], deletions, trials, seed):
        spared += [(falls[:, 0] > number).sum(axis=0) for number in after]
    return np.concatenate([np.ones((len(after), 1)), spared / trials], axis=1)


class Spread(BaseModel, frozen=True, use_attribute_docstrings=True):
    """A quantity over the simulated systems."""

    mean: Shown | None
    """None: in some system it never comes to that."""
    std: Shown | None


def spread(values: Ints | Floats) -> Spread:
    if (values == NEVER).any():
        return Spread(mean=None, std=None)
    return Spread(mean=float(values.mean()), std=float(values.std()))


Sample: TypeAlias = Annotated[Any, PlainSerializer(spread, return_type=Spread, when_used="json")]
"""An array, a number of each of N simulated systems; in documents its mean and standard deviation."""
Curve: TypeAlias = Annotated[Any, Field(exclude=True, repr=False), SkipJsonSchema()]


class Life(BaseModel, frozen=True, use_attribute_docstrings=True):
    """N simulated systems of m shards over R deletions, with repairs. Costs are in the unit of the stages' costs."""

    over: int
    """R, deletions in the system."""
    training_cost: Shown
    """Cost of the first training, all shards."""
    repairs: Sample
    """Number of repairs of a shard; one that had lost nothing is not counted."""
    cost: Sample
    """Cost of all repairs."""
    mean_depth: Sample
    """Slices that serve, averaged over shards and over the moments after each deletion and its repair."""
    hit_depth: Sample
    """The hit shard's depth right after the hit, before its repair, averaged over the deletions."""
    dead_share: Shown
    """Share of the deletions that left the hit shard dead, until its repair if there was one."""
    least_hit_depth: int
    """Least depth of a hit shard in all systems."""
    depth_counts: Curve
    """(R + 1) x (L + 1), number of the N m shards with each depth after r deletions."""
    repairs_after: Curve
    """R + 1, the mean number of repairs up to r deletions."""
    cost_after: Curve
    """R + 1, their mean cost."""


def simulate_repairs(
    policy: FixedOrders | AsNeeded,
    deletions: Deletions,
    *,
    costs: StageCosts,
    over: int,
    below: int | None = None,
    trials: int = 1_000,
    seed: int = 0,
) -> Life:
    """Simulate systems over R = `over` deletions, with replacement.

    A shard is repaired as soon as fewer slices than `below` are left: 1, when it is dead; 0, never; None: after each of
    its hits.
    """
    shards, slices = deletions.probabilities.shape
    system: _Orders | _Forests
    if isinstance(policy, AsNeeded):
        system = _Forests(policy, costs, deletions.probabilities, trials * shards)
    else:
        system = _Orders(policy.orders, costs, trials)
    generator, steps = np.random.default_rng(seed), np.cumsum(deletions.probabilities.reshape(-1))
    first_rows = np.arange(trials) * shards
    repairs, cost = np.zeros(trials, dtype=np.int64), np.zeros(trials)
    total, hit_total, dead, least = np.zeros(trials), np.zeros(trials), 0, slices
    counts, spent = np.zeros((over + 1, slices + 1), dtype=np.int64), np.zeros((2, over + 1))
    counts[0] = np.bincount(system.depths(), minlength=slices + 1)
    for number in range(1, over + 1):
        cells = np.searchsorted(steps, generator.random(trials) * steps[-1], side="right")
        shard, index = np.divmod(np.minimum(cells, len(steps) - 1), slices)
        rows = first_rows + shard
        system.hit(rows, index)
        hit_depths = system.length[rows].max(axis=1)
        hit_total += hit_depths
        dead += int((hit_depths == 0).sum())
        least = min(least, int(hit_depths.min()))
        due = rows if below is None else rows[hit_depths < below]
        spent_now = system.repair(due)
        repairs += np.bincount(due[spent_now > 0] // shards, minlength=trials)
        cost += np.bincount(due // shards, weights=spent_now, minlength=trials)
        depths = system.depths()
        counts[number] = np.bincount(depths, minlength=slices + 1)
        spent[:, number] = repairs.mean(), cost.mean()
        total += depths.reshape(trials, shards).mean(axis=1)
    return Life(
        over=over,
        training_cost=system.training,
        repairs=repairs,
        cost=cost,
        mean_depth=total / max(over, 1),
        hit_depth=hit_total / max(over, 1),
        dead_share=dead / max(over * trials, 1),
        least_hit_depth=least,
        depth_counts=counts,
        repairs_after=spent[0],
        cost_after=spent[1],
    )


class _Shards:
    """S shards of C orders or chains each, one system's m shards after another's."""

    place: Small
    """S x C x L, or m x C x L where systems have the same: where a slice lies in a chain, 0 at its top; L where it is
    not in it."""
    length: Small
    """S x C, live slices of each chain."""
    training: float
    """Cost of the first training of m shards."""

    def depths(self) -> Small:
        """S, slices that serve."""
        return np.asarray(self.length.max(axis=1))

    def hit(self, rows: Ints, index: Ints) -> None:
        """A slice of each of these shards loses a record."""
        ends = self.place[rows % len(self.place), :, index]
        self.length[rows] = np.minimum(self.length[rows], ends)


class _Orders(_Shards):
    def __init__(self, orders: Orders, costs: StageCosts, trials: int) -> None:
        shards, most, slices = len(orders), max(map(len, orders)), costs.slices
        self.place = np.empty((shards, most, slices), dtype=np.int16)
        self._spent = np.zeros((shards, most, slices + 1))
        """m x C x (L + 1), cost of an order's stages down to each depth; those of a common prefix count once."""
        for shard, chosen in enumerate(orders):
            trained: set[Order] = set()
            # Shards may have different numbers of orders: the first is repeated, which changes nothing.
            for number, order in enumerate([*chosen, *[chosen[0]] * (most - len(chosen))]):
                prefixes = [order[:depth] for depth in range(1, slices + 1)]
                own = [0.0 if each in trained else costs.of([each]) for each in prefixes]
                self.place[shard, number, list(order)] = np.arange(slices)
                self._spent[shard, number, 1:] = np.cumsum(own)
                trained.update(prefixes)
        self.training = float(self._spent[:, :, -1].sum())
        self.length = np.full((trials * shards, most), slices, dtype=np.int16)

    def repair(self, rows: Ints) -> Floats:
        """Train what these shards lack; what it costs each."""
        shard, chains = rows % len(self.place), np.arange(self.length.shape[1])
        before = self._spent[shard[:, None], chains, self.length[rows]]
        self.length[rows] = self.place.shape[2]
        return np.asarray((self._spent[shard, :, -1] - before).sum(axis=1))


class _Forests(_Shards):
    """The main chain is the first after a repair. `chances`, m x L, are of the next hit; m divides S = `count`."""

    def __init__(self, policy: AsNeeded, costs: StageCosts, chances: Floats, count: int) -> None:
        self._policy, slices = policy, chances.shape[1]
        self._slices, self._kept = slices, policy.least_after_hit(slices)
        # m x L: 0 for the least chance of a shard, equal for equal ones
        self._likely = np.array([np.unique(row, return_inverse=True)[1] for row in chances])
        self._spent = np.concatenate([[0.0], np.cumsum(costs.by_depth)])
        """Cost of a chain's stages down to each depth."""
        self.place = np.full((count, 1 + policy.spares, slices), slices, dtype=np.int16)
        self.length = np.zeros((count, 1 + policy.spares), dtype=np.int16)
        self.training = float(self.repair(np.arange(count))[: len(chances)].sum())

    def repair(self, rows: Ints) -> Floats:
        place, length = self.place[rows], self.length[rows]
        place[place >= length[:, :, None]] = self._slices
        # The longest first; of equal length that with the lesser slices, and chains have different first slices.
        first = np.where(length > 0, place.argmin(axis=2), self._slices)
        order = np.argsort(-length.astype(np.int64) * (self._slices + 1) + first, axis=1, kind="stable")
        place = np.take_along_axis(place, order[:, :, None], axis=1)
        length = np.take_along_axis(length, order, axis=1)
        before = self._spent[length].sum(axis=1)
        likely = self._likely[rows % len(self._likely)]
        self._extend(place, length, likely, 0, self._policy.depth)
        for chain in range(1, 1 + self._policy.spares):
            self._extend(place, length, likely, chain, self._policy.spare_depth)
        self.place[rows], self.length[rows] = place, length
        return np.asarray(self._spent[length].sum(axis=1) - before)

    def _extend(self, place: Small, length: Small, likely: Ints, chain: int, depth: int) -> None:
        short = np.flatnonzero(length[:, chain] < depth)
        if not len(short):
            return
        slices = self._slices
        others = np.delete(place[short], chain, axis=1)
        nearest = others.min(axis=1, initial=slices)  # K x L: how near a slice is to the top of any other chain
        own, begun = place[short, chain], length[short, chain]
        # The least likely first; of these the deepest elsewhere, then the least; those that the chain has come last.
        rank = likely[short] * (slices + 1) + slices - nearest
        rank[own < slices] = slices * (slices + 1)
        order = np.argsort(rank, axis=1, kind="stable")
        if (begun < self._kept).any():  # up to there by what lies deep enough elsewhere
            fits = np.take_along_axis((nearest >= self._kept) & (own == slices), order, axis=1)
            later = ~fits | (np.cumsum(fits, axis=1) > self._kept - begun[:, None])
            order = np.take_along_axis(order, np.argsort(later, axis=1, kind="stable"), axis=1)
        places = begun[:, None] + np.arange(slices, dtype=np.int16)
        new = np.where(places < depth, places, slices).astype(np.int16)
        added = np.full_like(own, slices)
        np.put_along_axis(added, order, new, axis=1)
        place[short, chain] = np.minimum(own, added)
        length[short, chain] = depth


def share_dead(
    policy: AsNeeded, seconds: StageCosts, *, shards: int, between: float, most: float, seed: int
) -> float | None:
    """Share of the time for which a shard has no live stage, while one process repairs them, stage after stage; None
    if it is above `most`.

    Deletions hit slices at random, `between` seconds after another in the mean; one that hits the stage in hand ends
    it. More than 100 shards are simulated as 100 whose stages and deletions take as much longer, which is no better.
    """
    slices, scale, count = seconds.slices, max(1.0, shards / _SHARDS_AT_ONCE), min(shards, _SHARDS_AT_ONCE)
    growth = Forests(policy=policy, costs=StageCosts.declared(slices), chances=((1 / slices,) * slices,) * count)
    alive = [growth.chains(shard, ()) for shard in range(count)]
    wanted = {shard: growth.next(shard, alive[shard]) for shard in range(count)}
    generator = np.random.default_rng(seed)
    moments = np.cumsum(generator.exponential(between * scale, _HITS)).tolist()
    places = generator.integers([count, slices], size=(_HITS, 2)).tolist()
    now, dead, allowed = 0.0, 0.0, most * moments[-1] * count
    stage, done = None, math.inf
    for moment, (shard, index) in zip(moments, places, strict=True):
        while now < moment:
            if stage is None and (ready := {one: best for one, best in wanted.items() if best is not None}):
                at = max(ready, key=lambda number: (ready[number][0], -number))
                stage = Stage(at, ready[at][1])
                done = now + scale * seconds.of([stage.prefix])
            end = moment if stage is None else min(done, moment)
            dead += (end - now) * sum(not chains for chains in alive)
            now = end
            if stage is not None and done <= moment:
                alive[stage.shard] = leaves((*alive[stage.shard], stage.prefix))
                wanted[stage.shard] = growth.next(stage.shard, alive[stage.shard])
                stage = None
        if dead > allowed:
            return None
        alive[shard] = without(alive[shard], index)
        wanted[shard] = growth.next(shard, alive[shard])
        if stage is not None and stage.shard == shard and index in stage.prefix:
            stage = None
    return dead / (now * count)


class Simulation(BaseModel, frozen=True, use_attribute_docstrings=True):
    """The answer of `s3t simulate`: numbers of deletions that a system survives, and what repairs cost."""

    deletion_rate: Sample
    """Deletions until every shard is dead, without repair."""
    first_failure: Sample
    """Deletions until the first shard is."""
    quantiles: Mapping[str, Mapping[str, int | None]]
    """Quantiles of both numbers above, over the simulated systems."""
    bound: Shown | None
    """The paper's Lemma 1, for uniform deletions."""
    depth: Mapping[int, Shown]
    """Mean depth of the shards after 1, 2, 4, ... deletions in the system, as long as most systems live."""
    unit: str
    """Unit of the costs."""
    repaired: Life | None
    """None: no policy was given."""


def summary(falls: Falls, life: Life | None, *, deletions: Deletions, tops: int, unit: str) -> Simulation:
    """The answer from the simulated systems. `tops` are the first slices of a shard's orders or chains."""
    both = {"deletion_rate": falls.deletion_rate, "first_failure": falls.first_failure}
    fall, most = deletions.probabilities, max(_quantile(falls.settled, 0.95) or 0, 1)
    numbers = [2**power for power in range(min(most.bit_length(), _POWERS))]
    return Simulation(
        **both,
        quantiles={name: {str(share): _quantile(times, share) for share in QUANTILES} for name, times in both.items()},
        bound=paper_bound(deletions.shards, deletions.slices, tops) if (fall == fall[0, 0]).all() else None,
        depth=dict(zip(numbers, falls.retained(numbers)[:, 1:].sum(axis=1).tolist(), strict=True)),
        unit=unit,
        repaired=life,
    )


def _quantile(times: Ints, share: float) -> int | None:
    value = int(np.quantile(times, share, method="inverted_cdf"))
    return None if value == NEVER else value
