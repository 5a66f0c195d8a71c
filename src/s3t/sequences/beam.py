"""Beam search for one order: the one that adds most to the worth of the others.

A prefix is judged by what it adds if its remaining slices follow in random order: an expectation that has a closed
form (the method of conditional expectations). So a step never loses what is expected of the steps before it, and
greedy steps see past the next slice. All sums are of integers below 2^53 held as floats: exact, in whatever order they
are added.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from s3t.sequences.hits import Hits, Ints
from s3t.sequences.score import Floats
from s3t.sequences.selector import Order

_UNIT = 2.0**40
"""Weight of a certain, full depth. Leaves 13 bits of a float's 53 for sums to stay exact."""


@dataclass(frozen=True)
class _State:
    """A prefix: the sets of hits that it has survived, and what it has gained from those it has not."""

    prefix: Order
    surviving: Ints
    gained: float


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
        self._expected = _expected_gains(value, int(hits.counts.max()))  # [depth, hits, rest]
        self._is_hit = np.zeros((len(hits.counts), self._slices + 1), dtype=bool)
        np.put_along_axis(self._is_hit, hits.slices, True, axis=1)
        self.evaluations = 0
        """Prefixes whose continuations have been judged."""

    def worth_of(self, depths: Ints) -> float:
        """Summed worth of the deepest prefixes, in integer units: `depths` has N numbers."""
        return float(np.rint(self._weights * self._ended[depths, 0]).sum())

    def build(self, rest: Ints, *, top: int | None, taken: Collection[Order]) -> Order | None:
        """The best order found that is not taken; None if all that were found are.

        Args:
            rest: N depths, that the other orders reach.
        """
        useful = np.flatnonzero(rest < self._slices - self._hits.counts)
        states = [_State((), useful, 0.0)]
        for depth in range(1, self._slices + 1):
            states = self._next(states, depth, rest, top if depth == 1 else None)
        return next((state.prefix for state in states if state.prefix not in taken), None)

    def _next(self, states: list[_State], depth: int, rest: Ints, top: int | None) -> list[_State]:
        judged = [self._judge(state, depth, rest) for state in states]
        scores = np.concatenate([score for score, _ in judged])
        allowed = np.isfinite(scores)
        if top is not None:
            allowed &= np.arange(len(scores)) % self._slices == top
        ranked = np.flatnonzero(allowed)
        ranked = ranked[np.argsort(-scores[ranked], kind="stable")]
        best: dict[Collection[int], _State] = {}
        for number in ranked.tolist():
            index, added = divmod(number, self._slices)
            state, ending = states[index], judged[index][1]
            prefix = (*state.prefix, added)
            # The same slices in another order go on in the same way: the best is kept. Whole orders all have the same.
            key: Collection[int] = frozenset(prefix) if depth < self._slices else prefix
            if key not in best:
                dies = self._is_hit[state.surviving, added]
                gained = state.gained + float(ending[dies].sum())
                best[key] = _State(prefix, state.surviving[~dies], gained)
            if len(best) == self._width:
                break
        return list(best.values())

    def _judge(self, state: _State, depth: int, rest: Ints) -> tuple[Floats, Floats]:
        """Expected gains of the prefix with each slice added (-inf if it is in it already), and gains of the surviving
        sets of hits if the prefix ends here."""
        self.evaluations += 1
        sets = state.surviving
        weights, others = self._weights[sets], rest[sets]
        going_on = np.rint(weights * self._expected[depth, self._hits.counts[sets], others])
        ending = np.rint(weights * self._ended[depth - 1, others])
        hit = self._hits.slices[sets]
        lost = np.bincount(
            hit.reshape(-1), weights=np.repeat(going_on - ending, hit.shape[1]), minlength=self._slices + 1
        )
        score = state.gained + going_on.sum() - lost[: self._slices]
        score[list(state.prefix)] = -np.inf
        return score, ending


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
