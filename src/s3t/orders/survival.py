"""Orders that keep the most alive: ours, not the paper's.

What a shard is worth after r deletions is F(depth of its best surviving prefix). This selector maximises its
expectation, averaged over a horizon of deletions, for any budget and any prior. The paper's rotations and BMS judge
each order alone, or how far orders lie apart; neither is what is served.

The tops come first: B <= L orders begin with B different slices, the least likely to be deleted, so that the deletion
rate is the best there is (paper, Lemma 1). Then orders are built one after another against what the others leave to be
gained, and built again, alone and a few together, while that helps.

An order is built by beam search. A prefix is judged by what it adds if its remaining slices follow in random order: an
expectation that has a closed form (the method of conditional expectations). So a step never loses what is expected of
the steps before it, and greedy steps see past the next slice. The prefixes of a depth are judged together, by one
sparse matrix product.

The search is bounded by a number of evaluations, never by a clock. All its sums are of integers below 2^53 held as
floats: exact, in whatever order they are added. So a setting gives the same orders on all machines with the same
versions of Python, numpy and scipy. Sets of hits: a deletion falls on slice i with probability p_i, each independently
of the others (the data is large against the deletions). They use only sums, products and comparisons in a fixed order,
and raw bits of PCG64.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from s3t.core import Order
from s3t.events import Progress, WorkStep, silent, telling
from s3t.orders.rules import bms, cyclic, sorted_cyclic
from s3t.orders.setting import Floats, Ints, Setting, completed, power
from s3t.wording import counted

ENUMERATED_SLICES = 12
"""Largest number of slices of which all 2^L sets are listed."""
LONG_EVALUATIONS = 10_000
"""Evaluations of a search from which on progress hears of it."""
MAX_EVALUATIONS = 160_000
"""Prefixes whose continuations are judged, in all."""
MAX_SWEEPS = 12
SHAKING_EVALUATIONS = 4_000
"""Share of them for building two or three orders anew at once, which reaches more than one order at a time."""
_WIDTH = 4
_SAMPLES, _FINAL_SAMPLES = 2**14, 2**16
_FEW = 0.5
"""Share of the sets that some prefix has still survived, below which the others are left out from there on."""
_UNIT = 2.0**40
"""Weight of a certain, full depth. Leaves 13 bits of a float's 53 for sums to stay exact."""


def survival(setting: Setting, *, progress: Progress = silent) -> tuple[Order, ...]:
    """B distinct orders; never worth less, by `expected_worth`, than `cyclic`'s, `sorted_cyclic`'s or `bms`'s.

    Given orders are kept. If the evaluations are spent before every order is built (B times L above 160,000), the rest
    are cyclic. `progress` hears of a search that may take longer than about a second.

    >>> survival(Setting(slices=4, budget=2))
    ((0, 2, 1, 3), (1, 3, 0, 2))
    """
    what = f"choosing {counted(setting.budget, 'order')} of {counted(setting.slices, 'slice')}"
    evaluations = _most_evaluations(setting)
    listener = progress if evaluations >= LONG_EVALUATIONS else silent
    with telling(listener, what, evaluations):
        searched = _Search(setting, progress=listener).run()
    if setting.given:
        return searched
    rivals = [sorted_cyclic(setting), cyclic(setting), *([bms(setting)] if setting.budget <= setting.slices else [])]
    judge = _judging(setting)
    return max([searched, *rivals], key=lambda orders: expected_worth(orders, setting, judge))  # the first of equals


def expected_worth(orders: tuple[Order, ...], setting: Setting, hits: Hits | None = None) -> float:
    """The objective of `survival`: the mean over the horizon of the expected F(depth of the best surviving prefix).

    Exact for L <= 12 and for horizons of 1 and 2. Else the mean over 65,536 sampled deletion histories, the same for
    all orders (standard error below 0.002 L).
    """
    hits = hits or _judging(setting)
    best = np.zeros(len(hits.counts), dtype=np.int64)
    for order in orders:
        np.maximum(best, hits.depths(order), out=best)
    return float((hits.weights * np.asarray(setting.worth)[best]).cumsum()[-1])  # added up in one order everywhere


def _judging(setting: Setting) -> Hits:
    # Another seed than the search's: orders are not judged on the sample that they were fitted to.
    return hits_over(setting.horizon, setting.probabilities, samples=_FINAL_SAMPLES, seed=1_000_003 + 2 * setting.seed)


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


def _most_evaluations(setting: Setting) -> int:
    """Largest number of evaluations that a search of the setting makes; a search that converges makes fewer."""
    builds = (setting.budget - len(setting.given)) * (1 + MAX_SWEEPS)
    return min(builds * setting.slices * _width(setting) + SHAKING_EVALUATIONS, MAX_EVALUATIONS)


def _width(setting: Setting) -> int:
    return _WIDTH if _WIDTH * setting.slices * setting.budget <= MAX_EVALUATIONS // 2 else 1


class _Search:
    """Search for the orders of one setting. `progress` hears of evaluations, `_most_evaluations` in all."""

    def __init__(self, setting: Setting, *, progress: Progress) -> None:
        self._setting = setting
        self._progress = progress
        self._to_tell = _most_evaluations(setting)
        size = setting.slices * setting.budget
        samples = _SAMPLES if size <= 512 else _SAMPLES // 2 if size <= 2048 else _SAMPLES // 4
        self._hits = hits_over(setting.horizon, setting.probabilities, samples=samples, seed=2 * setting.seed)
        self._beam = _Beam(self._hits, setting.worth, width=_width(setting))
        self._tops = _tops(setting)
        self._free = range(len(setting.given), setting.budget)
        self._orders: list[Order] = list(setting.given)
        self._depths: list[Ints] = [self._hits.depths(order) for order in setting.given]

    def run(self) -> tuple[Order, ...]:
        """B distinct orders, the given ones first."""
        budget, best = self._setting.budget, self._best(self._depths)
        while len(self._orders) < budget and not self._spent():
            order = self._build(len(self._orders), best)
            if order is None:
                break  # nothing left to gain: the rest may be any
            self._orders.append(order)
            self._depths.append(self._hits.depths(order))
            best = np.maximum(best, self._depths[-1])
        if len(self._orders) == budget:
            self._improve()
            self._shake()
        self._tell(self._to_tell)
        return completed(self._orders, cyclic(self._setting), budget)

    def _improve(self) -> None:
        for _ in range(MAX_SWEEPS):
            changed = False
            after = [self._best([])]  # depths that the orders after each one reach
            for depths in reversed(self._depths[1:]):
                after.append(np.maximum(after[-1], depths))
            after.reverse()
            before = self._best(self._depths[: self._free.start])
            for index in self._free:
                if self._spent():
                    return
                changed |= self._rebuild(index, np.maximum(before, after[index]))
                before = np.maximum(before, self._depths[index])
            if not changed:
                return

    def _shake(self) -> None:
        """Build a few orders anew together, the first of them against a random half of the hits; keep what helps."""
        generator = random.Random(self._setting.seed)  # noqa: S311 - nothing secret
        end = min(self._beam.evaluations + SHAKING_EVALUATIONS, MAX_EVALUATIONS)
        best = self._beam.worth_of(self._best(self._depths))
        while len(self._free) > 1 and self._beam.evaluations < end:
            before = list(self._orders), list(self._depths)
            indices = generator.sample(self._free, min(len(self._free), generator.choice((2, 3))))
            half = uniforms(len(self._hits.counts), generator.getrandbits(32)) < 0.5
            for index in indices:
                self._depths[index] = self._best([])  # as if it were not there
            first = indices[0]
            order = self._build(first, np.where(half, self._setting.slices, self._rest(first)))
            if order is not None:
                self._orders[first], self._depths[first] = order, self._hits.depths(order)
            for index in (*indices[1:], *indices):
                self._rebuild(index, self._rest(index))
            worth = self._beam.worth_of(self._best(self._depths))
            if worth > best:
                best = worth
            else:
                self._orders, self._depths = before

    def _build(self, index: int, rest: Ints) -> Order | None:
        """The order for a place that adds most to `rest`; None if it is one of the others."""
        before = self._beam.evaluations
        others = {*self._orders[:index], *self._orders[index + 1 :]}
        order = self._beam.build(rest, top=self._tops[index], taken=others)
        self._tell(self._beam.evaluations - before)
        return order

    def _rebuild(self, index: int, rest: Ints) -> bool:
        """Put another order in a place if that adds more to `rest`."""
        order = self._build(index, rest)
        if order is None:
            return False
        depths = self._hits.depths(order)
        worth, present = (self._beam.worth_of(np.maximum(rest, each)) for each in (depths, self._depths[index]))
        if worth <= present:
            return False
        self._orders[index], self._depths[index] = order, depths
        return True

    def _tell(self, evaluations: int) -> None:
        count = min(evaluations, self._to_tell)
        self._to_tell -= count
        self._progress(WorkStep(count=count))

    def _rest(self, index: int) -> Ints:
        """Depths that the other orders reach."""
        return self._best(self._depths[:index] + self._depths[index + 1 :])

    def _best(self, depths: list[Ints]) -> Ints:
        start: Ints = np.zeros(len(self._hits.counts), dtype=np.int64)
        return np.asarray(np.maximum.reduce([start, *depths]))

    def _spent(self) -> bool:
        return self._beam.evaluations >= MAX_EVALUATIONS


def _tops(setting: Setting) -> list[int | None]:
    """The slice on top of each order: those with which nothing given begins, the least likely to be deleted first; once
    all are used, any."""
    probabilities = setting.probabilities
    used = {order[0] for order in setting.given}
    fresh = sorted(set(range(setting.slices)) - used, key=lambda index: (probabilities[index], index))
    tops: list[int | None] = [order[0] for order in setting.given]
    return (tops + [*fresh] + [None] * setting.budget)[: setting.budget]


class _Beam:
    """Builds orders against given sets of hits; `width` prefixes go on at each depth. F(0)..F(L) is `worth`.

    Shapes: P prefixes, side by side; L slices; S sets of hits, among them all that a prefix has survived.
    """

    def __init__(self, hits: Hits, worth: Sequence[float], *, width: int) -> None:
        from scipy.sparse import csr_array  # here: importing it takes a tenth of a second

        self._slices = len(worth) - 1
        self._counts = hits.counts
        self._width = width
        value = np.asarray(worth)
        self._weights = hits.weights * (_UNIT / value[-1])
        self._ended = np.maximum(value[:, None] - value[None, :], 0)  # [depth, rest]
        expected = _expected_gains(value, int(hits.counts.max()))
        self._expected = expected.reshape(len(expected), -1)  # [depth, (hits, rest)]
        sets, places = np.nonzero(hits.slices < self._slices)
        shape = self._slices, len(hits.counts)
        self._hit = csr_array((np.ones(len(sets)), (hits.slices[sets, places], sets)), shape=shape)
        """L x S: 1 where a slice is in a set."""
        self.evaluations = 0
        """Prefixes whose continuations have been judged."""

    def worth_of(self, depths: Ints) -> float:
        """Summed worth of the deepest prefixes, in integer units: `depths` has N numbers."""
        return float(np.rint(self._weights * self._ended[:, 0].take(depths)).sum())

    def build(self, rest: Ints, *, top: int | None, taken: Collection[Order]) -> Order | None:
        """The best order found that is not taken; None if all that were found are. `rest`: N depths of the others."""
        slices, weights, hit = self._slices, self._weights, self._hit
        kinds = self._counts * (slices + 1) + rest  # S: numbers of (hits, rest) in a row of `_expected`
        orders: list[Order] = [()]
        members = [0]  # slices of each prefix as a bit mask
        gained = np.zeros(1)  # P: from the sets that a prefix has not survived
        surviving = (rest < slices - self._counts).astype(np.float64)[None, :]  # P x S: 1 where it has survived a set
        for depth in range(1, slices + 1):
            left = np.asarray(surviving.any(axis=0))
            if np.count_nonzero(left) <= _FEW * len(left):
                surviving, hit = surviving[:, left], hit[:, left]
                weights, rest, kinds = weights[left], rest[left], kinds[left]
            going_on = np.rint(weights * self._expected[depth].take(kinds))  # S: gains if a prefix survives a set,
            ending = np.rint(weights * self._ended[depth - 1].take(rest))  # and if it ends here
            at_stake = np.empty(surviving.shape[::-1])
            np.multiply(surviving, going_on - ending, out=at_stake.T)
            scores = (gained + surviving @ going_on)[:, None] - (hit @ at_stake).T  # P x L, with each slice added
            for row, order in enumerate(orders):
                scores[row, list(order)] = -np.inf
            if depth == 1 and top is not None:
                scores[:, np.arange(slices) != top] = -np.inf
            self.evaluations += len(orders)
            chosen = self._chosen(scores, members)
            parents = [index for index, _ in chosen]
            gained, surviving = gained[parents], surviving[parents]
            for row, (_, added) in enumerate(chosen):
                sets = hit.indices[hit.indptr[added] : hit.indptr[added + 1]]
                gained[row] += ending[sets] @ surviving[row, sets]
                surviving[row, sets] = 0
            orders = [(*orders[index], added) for index, added in chosen]
            members = [members[index] | 1 << added for index, added in chosen]
        return next((order for order in orders if order not in taken), None)

    def _chosen(self, scores: Floats, members: list[int]) -> list[tuple[int, int]]:
        """The best continuations: (prefix, slice added)."""
        ranked = np.argsort(-scores, axis=None, kind="stable")[: np.count_nonzero(scores > -np.inf)]
        best: dict[int, tuple[int, int]] = {}
        whole = (1 << self._slices) - 1
        for number in ranked.tolist():
            index, added = divmod(number, self._slices)
            # The same slices in another order go on in the same way: the best is kept. Whole orders all have the same.
            key = members[index] | 1 << added
            best.setdefault(number if key == whole else key, (index, added))
            if len(best) == self._width:
                break
        return list(best.values())


def _expected_gains(worth: Floats, most_hits: int) -> Floats:
    """Gain by an order that has survived `depth` slices and goes on in random order, [depth, hits, rest].

    `hits` of its L - depth remaining slices are hit; the other orders reach `rest`. The chance that the next t are all
    spared is the product of (n - hits - i) / (n - i) over i < t, n = L - depth.
    """
    slices = len(worth) - 1
    steps = np.diff(worth)
    gains = np.zeros((slices + 1, most_hits + 1, slices + 1))
    hits = np.arange(most_hits + 1)[:, None]
    for depth in range(slices + 1):
        remaining = slices - depth
        trials = np.arange(remaining)[None, :]
        spared = np.cumprod(np.maximum(remaining - hits - trials, 0) / np.maximum(remaining - trials, 1), axis=1)
        beyond = np.zeros((most_hits + 1, slices + 1))  # [hits, rest]: expected worth above F(max(rest, depth))
        beyond[:, depth:slices] = np.cumsum((spared * steps[depth:])[:, ::-1], axis=1)[:, ::-1]
        beyond[:, :depth] = beyond[:, depth : depth + 1] + (worth[depth] - worth[:depth])
        gains[depth] = beyond
    return gains
