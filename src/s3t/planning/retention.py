"""How deep a shard still is after r deletions: P[depth >= k], for given orders (paper, Lemma 2)."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s3t.errors import PlanningError
from s3t.planning.first_hits import chunk, fall_times, first_hits
from s3t.planning.unions import SignedUnions, prefix_sets, signed_unions
from s3t.sequences import Order, Setting

Floats = NDArray[np.float64]

MAX_TERMS = 2**20
"""Unions in an exact sum, at most; also 2^B of them."""
_MAX_ERROR = 1e-8
_QUANTILE = 1.959963984540054  # of the normal distribution, 97.5 %


@dataclass(frozen=True, kw_only=True, eq=False)
class Retention:
    """P[depth >= k after r deletions in the shard].

    Attributes:
        deletions: R numbers of deletions.
        probabilities: R x (L + 1), for k from 0 to L.
        low: the same, lower end of a 95 % confidence interval (Wilson's); equal to `probabilities` where exact.
        high: its upper end.
        exact: whether the probabilities are computed, not simulated.
    """

    deletions: tuple[int, ...]
    probabilities: Floats
    low: Floats
    high: Floats
    exact: bool

    @property
    def expected_depth(self) -> Floats:
        """R numbers, 0..L: the sum of the probabilities over k >= 1."""
        return np.asarray(self.probabilities[:, 1:].sum(axis=1))


def retention(
    orders: Sequence[Order],
    deletions: Sequence[int],
    *,
    prior: Sequence[float] | None = None,
    terms: int = MAX_TERMS,
    trials: int = 100_000,
    seed: int = 0,
) -> Retention:
    """How likely a shard with these orders is still k slices deep after r deletions in it.

    Exact by inclusion-exclusion where that takes at most `terms` terms (and never more than 2^min(B, 20)) and loses no
    more than 1e-8 to rounding; else simulated.

    >>> from s3t.sequences import Setting, cyclic
    >>> retention(cyclic(Setting(slices=4, budget=4)), [1, 2]).expected_depth.round(6).tolist()
    [3.0, 2.0]

    Args:
        orders: B distinct orders of L slices.
        deletions: r's, each at least 0; deletions fall independently of each other (data far larger than r).
        prior: L probabilities of the slices; None: uniform.
        terms: terms of an exact sum, at most.
        trials: simulated histories otherwise.
        seed: of the simulation.

    Raises:
        PlanningError: no orders, a negative number of deletions, fewer than 1 trials.
        SettingError: orders that are no permutations, a prior that is none.
    """
    problems = [
        f"{count} deletions: give whole numbers from 0 to 2^53"
        for count in deletions
        if not isinstance(count, numbers.Integral) or not 0 <= count <= 2**53
    ]
    problems += [] if orders else ["there are no orders"]
    problems += [] if trials >= 1 else [f"{trials} trials: give at least 1"]
    if problems:
        raise PlanningError("the retention asked for", problems)
    given = None if prior is None else tuple(prior)
    # Checks orders and prior.
    setting = Setting(slices=len(orders[0]), budget=len(set(orders)), prior=given, given=tuple(dict.fromkeys(orders)))
    probabilities = np.asarray(setting.probabilities)
    exact = _exact(setting.given, tuple(deletions), probabilities, min(terms, MAX_TERMS))
    if exact is not None:
        return Retention(deletions=tuple(deletions), probabilities=exact, low=exact, high=exact, exact=True)
    found = _simulated(setting.given, tuple(deletions), probabilities, trials, seed)
    low, high = _wilson(found, trials)
    return Retention(deletions=tuple(deletions), probabilities=found, low=low, high=high, exact=False)


def papers_retention(slices: int, budget: int, depth: int, deletions: int) -> float:
    """Lemma 2's P[depth >= k] for B random orders: 1 - (1 - (1 - k/L)^r)^B', B' = min(B, L!/(L-k)!).

    B = 1 is SISA's. It takes orders as if they were hit independently of each other, which they are not.

    Raises:
        PlanningError: a number is out of range.

    >>> round(papers_retention(slices=4, budget=4, depth=1, deletions=2), 4)
    0.9634
    """
    asked = {"slices": slices, "budget": budget, "depth": depth}
    problems = [f"{name} is {value}, not at least 1" for name, value in asked.items() if value < 1]
    problems += [f"depth {depth} is above the {slices} slices"] if depth > slices else []
    problems += [f"{deletions} deletions: give a number from 0"] if deletions < 0 else []
    if problems:
        raise PlanningError("the retention asked for", problems)
    spared = (1 - depth / slices) ** deletions
    return 1 - (1 - spared) ** min(budget, math.perm(slices, depth))


def full_budget_depth(deletions: Sequence[int], *, slices: int, prior: Sequence[float] | None = None) -> Floats:
    """The expected depth with all L! orders, which no budget exceeds: R numbers.

    Then all slices that have not been hit make a prefix. Their expected number is the sum of (1 - p)^r.

    >>> full_budget_depth([1, 2], slices=4).tolist()
    [3.0, 2.25]

    Args:
        deletions: R numbers of deletions in the shard.
        slices: L.
        prior: L probabilities; None: uniform.
    """
    probabilities = np.full(slices, 1 / slices) if prior is None else np.asarray(prior)
    spared = (1 - probabilities)[None, :] ** np.asarray(deletions)[:, None]
    return np.asarray(spared.sum(axis=1))


def _exact(orders: tuple[Order, ...], deletions: tuple[int, ...], probabilities: Floats, terms: int) -> Floats | None:
    slices = len(probabilities)
    tops = len({order[0] for order in orders})
    if 2**tops - 2 > terms:  # n tops have 2^n - 1 unions, of which that of all slices takes no term
        return None
    found = np.ones((len(deletions), slices + 1))
    for depth in range(slices, 0, -1):  # from the deepest: the largest sums come last, where a give-up has cost least
        unions = signed_unions(prefix_sets(orders, depth, slices), probabilities, terms=terms)
        if unions is None or not _filled(found, depth, deletions, unions):
            return None
    return np.minimum.accumulate(found, axis=1)  # rounding may leave a later one larger by 1e-16


def _filled(found: Floats, depth: int, deletions: tuple[int, ...], unions: SignedUnions) -> bool:
    for row, count in enumerate(deletions):
        if count == 0:
            continue
        found[row, depth], error = unions.spared(count)
        if error > _MAX_ERROR:
            return False
    return True


def _simulated(
    orders: tuple[Order, ...], deletions: tuple[int, ...], probabilities: Floats, trials: int, seed: int
) -> Floats:
    generator = np.random.default_rng(seed)
    survived = np.zeros((len(deletions), len(probabilities)))
    step = chunk(len(probabilities))
    for start in range(0, trials, step):
        hits = first_hits(probabilities, trials=min(step, trials - start), generator=generator)
        falls = fall_times(orders, hits)
        for row, count in enumerate(deletions):
            survived[row] += (falls > count).sum(axis=0)
    return np.concatenate([np.ones((len(deletions), 1)), survived / trials], axis=1)


def _wilson(found: Floats, trials: int) -> tuple[Floats, Floats]:
    square = _QUANTILE**2
    centre = (found + square / (2 * trials)) / (1 + square / trials)
    half = _QUANTILE / (1 + square / trials) * np.sqrt(found * (1 - found) / trials + square / (4 * trials**2))
    return np.minimum(centre - half, found), np.maximum(centre + half, found)
