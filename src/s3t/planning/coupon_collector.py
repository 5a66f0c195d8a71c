"""Waiting for a target when every record left is equally likely, or records never run out.

The coupon collector's problem with unequal probabilities, several targets, with or without replacement. Shapes:
K kinds of slices, G kinds of targets, P points.

Moments. Give every record a clock that rings after an exponential time with mean N; the first T to ring are the
first T deletions. With u = 1 - exp(-t/N), the chance that a record has rung by t, the u of the r-th deletion has
the mean r/(N+1) and the mean square r(r+1)/((N+1)(N+2)), independent of which records they are. So

    E[T] = (N+1) * integral of P(no target complete at u) du,   E[T(T+1)] = (N+1)(N+2) * integral of 2u P(...) du,

and as slices are hit independently of each other, P is a product. With replacement is the limit N -> infinity.

Distribution. Take r deletions at random out of a process in which the number of deletions is binomial (with
replacement: Poisson) with mean near r: P(T > r) is the coefficient of z**r in the generating function of "no target
complete, and so many deletions", over that of "so many deletions". The latter is exp(A(z)); a slice of
probability p has exp(p A(z)), and to be hit, exp(p A(z)) - exp(p A(0)).

P. Flajolet, D. Gardy, L. Thimonier, "Birthday paradox, coupon collectors, caching algorithms and self-organizing
search", Discrete Applied Mathematics 39 (1992), doi:10.1016/0166-218X(92)90177-C, for Poissonisation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s3t.planning.coefficients import coefficients, odd
from s3t.planning.quadrature import integral
from s3t.planning.targets import Targets

Numbers = NDArray[np.float64]
Complex = NDArray[np.complex128]

REACH = 2.0
"""How far from the mean, in standard deviations, a coefficient is read off. Further out it loses digits."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CouponCollector:
    """The law of the number of deletions until a target is complete.

    Attributes:
        targets: one of which must be hit entirely.
        population: records altogether, N; infinite for sampling with replacement.
    """

    targets: Targets
    population: float

    def mean(self) -> float:
        """E[T], to a relative error of 1e-9 or less; the closed form for one target of equal slices."""
        targets = self.targets
        if math.isinf(self.population) and len(targets.times) == 1 and targets.copies[0] == 1:
            return harmonic(int(targets.times[0])) / float(targets.probabilities[0])
        return (1 + 1 / self.population) * integral(
            lambda times: self._alive(times) * np.exp(-times / self.population), end=self._end
        )

    def std(self) -> float:
        """The standard deviation of T, to about 1e-5 of the mean."""
        scarcity, mean = 1 / self.population, self.mean()

        def twice_rung(times: Numbers) -> Numbers:
            rung = -np.expm1(-times * scarcity) / scarcity if scarcity else times
            weighted: Numbers = 2 * (rung / mean) * self._alive(times) * np.exp(-times * scarcity)
            return weighted

        # In units of the squared mean, which may be too large a number itself.
        square = (1 + scarcity) * (1 + 2 * scarcity) * integral(twice_rung, end=self._end) / mean - 1 / mean
        # The difference of numbers that are good to about 1e-12: less is nothing.
        return mean * math.sqrt(square - 1) if square - 1 > 1e-11 else 0.0

    def distribution(self, deletions: NDArray[np.int64]) -> Numbers:
        """P(T <= r) for every r of `deletions`, R."""
        wanted, where = np.unique(deletions, return_inverse=True)
        found = np.zeros(len(wanted))
        first = int(np.searchsorted(wanted, self.targets.sizes.min()))
        end = len(wanted) if math.isinf(self.population) else int(np.searchsorted(wanted, self.population))
        found[end:] = 1
        while first < end:
            low = int(wanted[first])
            mean = _mean_above(low, self.population)
            deviation = math.sqrt(mean * (1 - mean / self.population))
            last = max(int(np.searchsorted(wanted, mean + REACH * deviation, side="right")), first + 1)
            last = min(last, end)
            found[first:last] = self._near(mean, deviation, wanted[first:last])
            first = last
        return np.clip(found, 0, 1)[where.reshape(deletions.shape)]

    @property
    def _end(self) -> float:
        """When the chance that no target is complete is below 1e-17."""
        return float((40 + math.log(len(self.targets.times) + 1)) / self.targets.probabilities.min())

    def _alive(self, times: Numbers) -> Numbers:
        alive: Numbers = np.exp(self.targets.log_alive(times)[1])
        return alive

    def _near(self, mean: float, deviation: float, counts: NDArray[np.int64]) -> Numbers:
        """P(T <= r) for counts r near the mean of the number of deletions."""
        targets = self.targets
        share = mean / self.population
        none = self.population * math.log1p(-share) if share else -mean
        needed = targets.sums(targets.probabilities)
        rest = max(0.0, 1 - math.fsum(needed * targets.copies))

        def alive_and_all(angles: Numbers) -> Complex:
            log_all = self._log_counts(angles, mean)[:, np.newaxis]
            missed = np.exp(targets.probabilities * none)
            hit = (np.exp(targets.probabilities * log_all) - missed) ** targets.times
            complete = np.multiply.reduceat(hit, targets.starts, axis=-1)
            incomplete = (np.exp(needed * log_all) - complete) ** targets.copies
            alive = incomplete.prod(axis=-1) * np.exp(rest * log_all[:, 0])
            return np.stack([alive, np.exp(log_all[:, 0])])

        # Counts 10 standard deviations away have no weight that matters.
        size = odd((REACH + 10) * deviation + 20)
        alive, everything = coefficients(alive_and_all, counts, size=size)
        found: Numbers = 1 - alive / everything
        return found

    def _log_counts(self, angles: Numbers, mean: float) -> Complex:
        """A(z): the logarithm of the generating function of the number of deletions, P; binomial or Poisson."""
        back = 2 * np.sin(angles / 2) ** 2
        share = mean / self.population
        if not share:
            return mean * (-back + 1j * np.sin(angles))
        # |1 + share (z-1)| from what it lacks to 1: near the mean it is multiplied by N and must not lose digits.
        size = np.log1p(-2 * share * (1 - share) * back) / 2
        return self.population * (size + 1j * np.arctan2(share * np.sin(angles), 1 - share * back))


def _mean_above(low: int, population: float) -> float:
    """The mean of a binomial (or Poisson) number that is REACH standard deviations above `low`."""
    square = REACH**2
    half = low + square / 2
    spread = 1 + square / population
    return (half + math.sqrt(half**2 - spread * low**2)) / spread


def harmonic(number: int) -> float:
    """1 + 1/2 + ... + 1/number."""
    return math.fsum(1 / index for index in range(1, number + 1))
