"""Beam search for one order: the one that adds most to the worth of the others.

A prefix is judged by what it adds if its remaining slices follow in random order: an expectation that has a closed
form (the method of conditional expectations). So a step never loses what is expected of the steps before it, and
greedy steps see past the next slice. The prefixes of a depth are judged together, by one sparse matrix product. All
sums are of integers below 2^53 held as floats: exact, in whatever order they are added.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from s3t.sequences.hits import Hits, Ints
from s3t.sequences.score import Floats
from s3t.sequences.selector import Order

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_FEW = 0.5
"""Share of the sets that some prefix has still survived, below which the others are left out from there on."""
_UNIT = 2.0**40
"""Weight of a certain, full depth. Leaves 13 bits of a float's 53 for sums to stay exact."""


@dataclass(frozen=True, kw_only=True)
class _Sets:
    """Sets of hits, and what is gained from them by orders beside others.

    Shapes: S sets, L slices.
    """

    weights: Floats
    """S, in integer units."""
    rest: Ints
    """S: depths that the other orders reach."""
    kinds: Ints
    """S: numbers of (hits, rest) in a row of `OrderSearch._expected`."""
    hit: csr_array
    """L x S: 1 where a slice is in a set."""

    def hit_by(self, index: int) -> npt.NDArray[np.int32]:
        """Numbers of the sets that a slice is in."""
        return np.asarray(self.hit.indices[self.hit.indptr[index] : self.hit.indptr[index + 1]])

    def chosen(self, chosen: npt.NDArray[np.bool_]) -> _Sets:
        """Some of them."""
        return _Sets(
            weights=self.weights[chosen],
            rest=self.rest[chosen],
            kinds=self.kinds[chosen],
            hit=_columns(self.hit, chosen),
        )


@dataclass(frozen=True, kw_only=True)
class _Prefixes:
    """The prefixes that go on at one depth, side by side.

    Shapes: P prefixes, S sets of hits, among them all that a prefix has survived.
    """

    orders: list[Order]
    members: list[int]
    """Each prefix's set of slices as a bit mask: the sum of 2^i over its slices i."""
    gained: Floats
    """P: what each has gained from the sets that it has not survived."""
    surviving: Floats
    """P x S: 1 where a prefix has survived a set, else 0."""
    sets: _Sets

    def reduced(self) -> _Prefixes:
        """Without the sets that no prefix has survived, if they are many."""
        few = _FEW * self.surviving.shape[1]
        if np.count_nonzero(self.surviving[0]) > few:
            return self
        left = np.asarray(self.surviving.any(axis=0))
        if np.count_nonzero(left) > few:
            return self
        return replace(self, surviving=self.surviving[:, left], sets=self.sets.chosen(left))


class OrderSearch:
    """Builds orders against given sets of hits.

    Args:
        hits: N sets of hit slices of L slices.
        worth: F(0)..F(L), non-decreasing.
        width: prefixes that go on at each depth.
    """

    def __init__(self, hits: Hits, worth: Sequence[float], *, width: int) -> None:
        self._slices = len(worth) - 1
        self._hits = hits
        self._width = width
        value = np.asarray(worth)
        self._weights = hits.weights * (_UNIT / value[-1])
        self._ended = np.maximum(value[:, None] - value[None, :], 0)  # [depth, rest]
        expected = _expected_gains(value, int(hits.counts.max()))
        self._expected = expected.reshape(len(expected), -1)  # [depth, (hits, rest)]
        self._hit = _hit_matrix(hits, self._slices)
        self.evaluations = 0
        """Prefixes whose continuations have been judged."""

    def worth_of(self, depths: Ints) -> float:
        """Summed worth of the deepest prefixes, in integer units: `depths` has N numbers."""
        return float(np.rint(self._weights * self._ended[:, 0].take(depths)).sum())

    def build(self, rest: Ints, *, top: int | None, taken: Collection[Order]) -> Order | None:
        """The best order found that is not taken; None if all that were found are.

        Args:
            rest: N depths, that the other orders reach.
        """
        counts = self._hits.counts
        sets = _Sets(weights=self._weights, rest=rest, kinds=counts * (self._slices + 1) + rest, hit=self._hit)
        useful = (rest < self._slices - counts).astype(np.float64)
        prefixes = _Prefixes(orders=[()], members=[0], gained=np.zeros(1), surviving=useful[None, :], sets=sets)
        for depth in range(1, self._slices + 1):
            prefixes = self._next(prefixes.reduced(), depth, top if depth == 1 else None)
        return next((order for order in prefixes.orders if order not in taken), None)

    def _next(self, prefixes: _Prefixes, depth: int, top: int | None) -> _Prefixes:
        """The best continuations of prefixes by one slice."""
        scores, ending = self._judge(prefixes, depth)
        if top is not None:
            scores[:, np.arange(self._slices) != top] = -np.inf
        ranked = np.argsort(-scores, axis=None, kind="stable")[: np.count_nonzero(scores > -np.inf)]
        best: dict[int, tuple[int, int]] = {}
        for number in ranked.tolist():
            index, added = divmod(number, self._slices)
            # The same slices in another order go on in the same way: the best is kept. Whole orders all have the same.
            key = number if depth == self._slices else prefixes.members[index] | 1 << added
            best.setdefault(key, (index, added))
            if len(best) == self._width:
                break
        parents = [index for index, _ in best.values()]
        gained, surviving = prefixes.gained[parents], prefixes.surviving[parents]
        for row, (_, added) in enumerate(best.values()):
            hit = prefixes.sets.hit_by(added)
            gained[row] += ending[hit] @ surviving[row, hit]
            surviving[row, hit] = 0
        orders = [(*prefixes.orders[index], added) for index, added in best.values()]
        members = [prefixes.members[index] | 1 << added for index, added in best.values()]
        return _Prefixes(orders=orders, members=members, gained=gained, surviving=surviving, sets=prefixes.sets)

    def _judge(self, prefixes: _Prefixes, depth: int) -> tuple[Floats, Floats]:
        """Expected gains of prefixes with each slice added, P x L (-inf if it is in the prefix already).

        Second, the gains from each of the S sets of hits if a prefix ends here."""
        self.evaluations += len(prefixes.orders)
        sets, surviving = prefixes.sets, prefixes.surviving
        going_on = np.rint(sets.weights * self._expected[depth].take(sets.kinds))
        ending = np.rint(sets.weights * self._ended[depth - 1].take(sets.rest))
        at_stake = np.empty(surviving.shape[::-1])
        np.multiply(surviving, going_on - ending, out=at_stake.T)
        scores = (prefixes.gained + surviving @ going_on)[:, None] - (sets.hit @ at_stake).T
        for row, order in enumerate(prefixes.orders):
            scores[row, list(order)] = -np.inf
        return scores, ending


def _hit_matrix(hits: Hits, slices: int) -> csr_array:
    """L x N: 1 where a slice is in a set."""
    sets, places = np.nonzero(hits.slices < slices)
    members = hits.slices[sets, places]
    ordered = np.argsort(members, kind="stable")
    starts = np.concatenate([[0], np.bincount(members, minlength=slices).cumsum()])
    return _of_rows(sets[ordered].astype(np.int32), starts, len(hits.counts))


def _columns(matrix: csr_array, chosen: npt.NDArray[np.bool_]) -> csr_array:
    """Some columns of a matrix of zeros and ones."""
    kept = chosen[matrix.indices]
    renumbered = (np.cumsum(chosen, dtype=np.int32) - 1)[matrix.indices[kept]]
    starts = np.concatenate([[0], np.cumsum(kept)])[matrix.indptr]
    return _of_rows(renumbered, starts, int(np.count_nonzero(chosen)))


def _of_rows(columns: npt.NDArray[np.int32], starts: Ints, width: int) -> csr_array:
    from scipy.sparse import csr_array  # here: importing it takes a tenth of a second

    return csr_array((np.ones(len(columns)), columns, starts.astype(np.int32)), shape=(len(starts) - 1, width))


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
