"""How many deletions a system survives, exactly: means and standard deviations (paper, Section 3.2 and Lemma 1).

A shard lives as long as one of its top slices, with which a sequence begins, has lost no record. The deletion rate
waits until every shard is dead, first failure until one is. This is the coupon collector's problem with unequal
probabilities and several targets, with replacement. Let deletions come at rate 1: then slices are hit independently of
each other, so P(no target is complete at t) is a product, and

    E[T] = integral of P(no target complete at t) dt,   E[T(T+1)] = integral of 2t P(...) dt.

Equal slices of a target, and equal targets, are stored once and counted. Shapes: K kinds of slices, one target after
the other; G kinds of targets; P points.

P. Flajolet, D. Gardy, L. Thimonier, "Birthday paradox, coupon collectors, caching algorithms and self-organizing
search", Discrete Applied Mathematics 39 (1992), doi:10.1016/0166-218X(92)90177-C, for Poissonisation.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s3t.planning.bounds import harmonic, paper_bound
from s3t.planning.simulation import Deletions

Numbers = NDArray[np.float64]
Cell = tuple[int, int]
"""A shard and a slice of it."""
Tops = Sequence[Collection[int]]
"""For each shard, the slices with which some sequence begins; none empty."""

BEGIN = 1e-15
"""Earlier times are left out. Times are counted in deletions, so this is what is lost, in deletions."""
COARSEST, FINEST = 0.25, 2.0**-12
AGREEMENT = 1e-12
BATCH = 256


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """The number of deletions until something happens. Mean infinite, deviation not a number: it never does."""

    mean: float
    """To a relative error of 1e-9."""
    std: float
    """To about 1e-5 of the mean."""


def deletion_rate(tops: Tops, deletions: Deletions) -> Waiting:
    """The number of deletions until every shard is dead.

    >>> round(deletion_rate([{0, 1, 2}, {0, 1, 2}], Deletions.uniform(2, 3)).mean, 9)
    14.7
    """
    return _waiting([[(shard, index) for shard, slices in enumerate(tops) for index in sorted(set(slices))]], deletions)


def first_failure(tops: Tops, deletions: Deletions) -> Waiting:
    """The number of deletions until the first shard is dead.

    >>> round(first_failure([{0}, {0}, {0}, {0}, {0}], Deletions.uniform(5, 6)).mean, 9)
    6.0
    """
    return _waiting([[(shard, index) for index in sorted(set(slices))] for shard, slices in enumerate(tops)], deletions)


def sisa_bound(shards: int, slices: int) -> float:
    """The paper's Lemma 1 for SISA, which has one sequence a shard."""
    return paper_bound(shards, slices, 1)


def integral(function: Callable[[Numbers], Numbers], *, end: float) -> float:
    """The integral of a bounded, analytic function from 0 to infinity.

    The trapezoidal rule in the logarithm of time converges exponentially for such functions; the step is halved until
    two results agree.

    Args:
        function: times, P, to values, P.
        end: the time after which the function is negligible.

    Raises:
        ArithmeticError: the results do not come to agree.

    >>> round(integral(lambda t: np.exp(-t / 7), end=400.0), 12)
    7.0
    """
    low, high = math.log(BEGIN), math.log(end)
    step = COARSEST
    points = np.arange(low, high + step, step)
    total = _sum(function, points)
    while step > FINEST:
        middles = points + step / 2
        before, total = total * step, total + _sum(function, middles)
        step /= 2
        points = np.sort(np.concatenate([points, middles]))
        if abs(total * step - before) <= AGREEMENT * abs(before):
            return total * step
    raise ArithmeticError(f"no agreement between steps: {before} and {total * step}")


def _sum(function: Callable[[Numbers], Numbers], points: Numbers) -> float:
    """The sum over points in the logarithm of time, batch by batch to bound the memory."""
    times = np.exp(points)
    batches = [times[start : start + BATCH] for start in range(0, len(times), BATCH)]
    return math.fsum(float(function(batch) @ batch) for batch in batches)


def _waiting(wanted: list[list[Cell]], deletions: Deletions) -> Waiting:
    """The number of deletions until all cells of one of the lists have been hit."""
    wanted = [cells for cells in wanted if all(deletions.probabilities[cell] > 0 for cell in cells)]
    if not wanted:
        return Waiting(mean=math.inf, std=math.nan)
    targets = _targets(wanted, deletions)
    mean = targets.mean()
    return Waiting(mean=max(1.0, mean), std=targets.std(mean))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Targets:
    """Sets of slices of which one must be hit entirely.

    Attributes:
        probabilities: of each kind of slice, K, positive.
        times: how often a kind of slice is in its target, K.
        starts: where each target's kinds begin, G.
        copies: how many targets are like this one, G.
    """

    probabilities: Numbers
    times: Numbers
    starts: NDArray[np.int64]
    copies: Numbers

    def mean(self) -> float:
        """E[T]; the closed form for one target of equal slices."""
        if len(self.times) == 1 and self.copies[0] == 1:
            return harmonic(int(self.times[0])) / float(self.probabilities[0])
        return integral(self._alive, end=self._end)

    def std(self, mean: float) -> float:
        """The standard deviation of T, given its mean."""
        # In units of the squared mean, which may be too large a number itself.
        square = integral(lambda times: 2 * (times / mean) * self._alive(times), end=self._end) / mean - 1 / mean
        # The difference of numbers that are good to about 1e-12: less is nothing.
        return mean * math.sqrt(square - 1) if square - 1 > 1e-11 else 0.0

    @property
    def _end(self) -> float:
        """When the chance that no target is complete is below 1e-17."""
        return float((40 + math.log(len(self.times) + 1)) / self.probabilities.min())

    def _alive(self, times: Numbers) -> Numbers:
        """The chance that no target is complete, P."""
        with np.errstate(divide="ignore"):
            each = _log_one_minus_exp(np.multiply.outer(times, self.probabilities)) * self.times
            hit = np.add.reduceat(each, self.starts, axis=-1)
            alive: Numbers = np.exp(_log_one_minus_exp(-hit) @ self.copies)
        return alive


def _targets(wanted: Iterable[Iterable[Cell]], deletions: Deletions) -> _Targets:
    """The targets, equal ones counted; each has a slice, none twice, all of positive probability."""
    counts: Counter[bytes] = Counter()
    for cells in wanted:
        where = tuple(np.array(list(cells)).T)
        unique, times = np.unique(deletions.probabilities[where], return_counts=True)
        counts[np.column_stack([unique, times]).tobytes()] += 1
    tables = [np.frombuffer(table).reshape(-1, 2) for table in counts]
    rows = np.concatenate(tables)
    return _Targets(
        probabilities=rows[:, 0],
        times=rows[:, 1],
        starts=np.cumsum([0, *map(len, tables)])[:-1],
        copies=np.array(list(counts.values()), dtype=np.float64),
    )


def _log_one_minus_exp(x: Numbers) -> Numbers:
    """log(1 - exp(-x)) for x >= 0, to full relative precision at both ends; minus infinity at 0."""
    near = np.log(-np.expm1(-np.minimum(x, 1)))
    far = np.log1p(-np.exp(-np.maximum(x, 0.5)))
    result: Numbers = np.where(x < math.log(2), near, far)
    return result
