"""Waiting for a target when records run out and those of some slices are likelier than others.

Successive sampling: the next deleted record is drawn from those left in proportion to its weight. Give every record a
clock that rings after an exponential time with its weight as the rate; the order in which they ring is that order. At
a time t, slices are hit independently of each other, and a record that rings at t is the next after those that have
rung. So

    P(T > r) = integral over t, summed over all records i, of
               P(i rings at t) * P(r others have rung, and no target is complete, where i has not rung),

the latter a coefficient of a generating function, a product over slices; and E[T], the sum over r, needs no
coefficients. Shapes: K kinds of slices, G kinds of targets, R rates of all other slices, P points.

P. Efraimidis, P. Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97 (2006),
doi:10.1016/j.ipl.2005.11.003, for the clocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from s3t.planning.coefficients import coefficients, odd
from s3t.planning.deletions import Deletions
from s3t.planning.quadrature import integral
from s3t.planning.targets import Targets

Numbers = NDArray[np.float64]
Complex = NDArray[np.complex128]

PANEL, LONGEST, ORDER = 4.0, 0.5, 12
"""Of the quadrature: the longest panel, in standard deviations and in the logarithm of time; points in a panel."""
REACH = 8.5
"""How many standard deviations from its mean the number of deletions can be."""
NEGLIGIBLE = 1e-16
"""A chance that no target is complete: later times are left out."""
TINY = 1e-100
"""Stands for what is smaller and is divided by what it was multiplied with."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SuccessiveSampling:
    """The law of the number of deletions until a target is complete.

    Attributes:
        targets: one of which must be hit entirely.
        rest_rates: weights of a record, one for each kind of slice that is in no target, R.
        rest_records: how many records there are of each, R.
    """

    targets: Targets
    rest_rates: Numbers
    rest_records: Numbers

    @classmethod
    def of(cls, targets: Targets, deletions: Deletions, needed: NDArray[np.bool_]) -> SuccessiveSampling:
        """The law for `deletions` without replacement, where `needed`, m x L, marks the slices of the targets.

        Slices of probability 0 never lose a record and are left out.
        """
        probabilities, records = deletions.probabilities, deletions.records
        if records is None:
            raise ValueError("successive sampling needs the number of records")
        others = ~needed & (probabilities > 0)
        rates, kinds = np.unique(probabilities[others] / records[others], return_inverse=True)
        return cls(
            targets=targets,
            rest_rates=rates,
            rest_records=np.bincount(kinds, weights=records[others], minlength=len(rates)).astype(np.float64),
        )

    @cached_property
    def population(self) -> int:
        """How many records can be deleted."""
        per_target = self.targets.sums(self.targets.records)
        return round(float(per_target @ self.targets.copies) + float(self.rest_records.sum()))

    def mean(self) -> float:
        """E[T], to a relative error of 1e-9 or less: the expected number of records that ring until then."""
        return integral(self._flow, end=self._end)

    def std(self) -> float:
        """The standard deviation of T, from its distribution."""
        counts = np.arange(self.population + 1)
        mean = math.fsum(self._survival)
        return math.sqrt(max(0.0, math.fsum((2 * counts + 1) * self._survival) - mean**2))

    def distribution(self, deletions: NDArray[np.int64]) -> Numbers:
        """P(T <= r) for every r of `deletions`, R. The first call works out all."""
        found: Numbers = 1 - self._survival[np.minimum(deletions, self.population)]
        return found

    @property
    def _rates(self) -> Numbers:
        return self.targets.probabilities / self.targets.records

    @property
    def _end(self) -> float:
        """When the chance that no target is complete is below 1e-17."""
        return float((40 + math.log(len(self.targets.times) + 1)) / self.targets.probabilities.min())

    def _flow(self, times: Numbers) -> Numbers:
        """The expected number of records that ring per time while no target is complete, P."""
        targets = self.targets
        log_incomplete, log_alive = targets.log_alive(times)
        left = np.multiply.outer(times, self._rates)
        times_probability = np.multiply.outer(times, targets.probabilities)
        others = np.exp(np.minimum(log_alive[:, np.newaxis] - np.maximum(log_incomplete, -700), 0))
        incomplete = np.exp(log_incomplete)[:, targets.owner]
        # If one more record of the slice is known to be left, the chance that the slice was hit is less by this part.
        less = np.exp(left - times_probability) * np.expm1(-left) / np.expm1(-times_probability)
        alive = incomplete + (1 - incomplete) * less
        flow = targets.sums(targets.probabilities * np.exp(-left) * alive)
        rest = np.exp(-np.multiply.outer(times, self.rest_rates)) @ (self.rest_rates * self.rest_records)
        total: Numbers = (others * flow) @ targets.copies + np.exp(log_alive) * rest
        return total

    @cached_property
    def _survival(self) -> Numbers:
        """P(T > r) for r = 0 .. population."""
        survival = np.zeros(self.population + 1)
        for time, weight in zip(*self._nodes(), strict=True):
            mean, deviation = self._deleted_by(time)
            low = max(0, math.floor(mean - REACH * deviation) - 10)
            size = odd(2 * REACH * deviation + 40)
            counts = np.arange(low, min(low + size, self.population + 1))
            survival[counts] += weight * coefficients(partial(self._flow_of, time), counts, size=size)[0]
        survival[: int(self.targets.sizes.min())] = 1
        survival[-1] = 0
        return np.clip(survival, 0, 1)

    def _kinds(self) -> tuple[Numbers, Numbers]:
        """Rates and numbers of records of all kinds of slices."""
        targets = self.targets
        copies = targets.copies[targets.owner]
        return (
            np.concatenate([self._rates, self.rest_rates]),
            np.concatenate([targets.records * targets.times * copies, self.rest_records]),
        )

    def _deleted_by(self, time: float) -> tuple[float, float]:
        """Mean and standard deviation of the number of records that have rung."""
        rates, records = self._kinds()
        rung = -np.expm1(-rates * time)
        return float(records @ rung), math.sqrt(records @ (rung * (1 - rung)))

    def _nodes(self) -> tuple[Numbers, Numbers]:
        """Times and weights of Gauss's rule in panels over the logarithm of time.

        A panel is so short that the number of deletions changes by no more than PANEL standard deviations. Where
        hardly any record rings, that is long, so it is bounded in the logarithm of time, too.
        """
        rates, records = self._kinds()
        logs = np.linspace(math.log(1e-8), math.log(self._end), 4096)
        logs = logs[self.targets.log_alive(np.exp(logs))[1] > math.log(NEGLIGIBLE)]
        left = np.exp(-np.multiply.outer(np.exp(logs), rates))
        rung = -np.expm1(-np.multiply.outer(np.exp(logs), rates))
        speed = np.exp(logs) * (left @ (rates * records)) / np.sqrt((left * rung) @ records)
        speed = speed / PANEL + 1 / LONGEST
        panels = np.concatenate([[0], np.cumsum((speed[1:] + speed[:-1]) / 2 * np.diff(logs))])
        edges = np.interp(np.linspace(0, panels[-1], math.ceil(panels[-1]) + 1), panels, logs)
        points, weights = np.polynomial.legendre.leggauss(ORDER)
        halves = np.diff(edges)[:, np.newaxis] / 2
        times = np.exp((edges[:-1, np.newaxis] + halves * (1 + points)).ravel())
        return times, (halves * weights).ravel()

    def _flow_of(self, time: float, angles: Numbers) -> Complex:
        """The generating function of: so many have rung, no target is complete, and one more rings now; 1 x P.

        Per unit of the logarithm of time, which keeps it of the order of 1 where it matters.
        """
        targets = self.targets
        log_one = _log_rung(angles, -np.expm1(-self._rates * time))
        rest_one = _log_rung(angles, -np.expm1(-self.rest_rates * time))
        log_rest = rest_one @ self.rest_records
        ringing = self._rates * targets.records * np.exp(-self._rates * time)
        rest_ringing = self.rest_rates * self.rest_records * np.exp(-self.rest_rates * time)

        hit = _some(np.exp(targets.records * log_one) - np.exp(-targets.probabilities * time))
        complete = np.multiply.reduceat(hit**targets.times, targets.starts, axis=-1)
        everything = np.exp(targets.sums(targets.records * log_one))
        incomplete = _some(everything - complete)
        alive = (incomplete**targets.copies).prod(axis=-1) * np.exp(log_rest)

        # The same where one record of a slice is known to be left: the slice has one fewer that may have rung.
        fewer = targets.records - 1
        hit_fewer = np.exp(fewer * log_one) - np.exp(-self._rates * fewer * time)
        each = everything[:, targets.owner] * np.exp(-log_one) - complete[:, targets.owner] / hit * hit_fewer
        flow = targets.sums(ringing * each) / incomplete
        total: Complex = alive * (flow @ targets.copies + np.exp(-rest_one) @ rest_ringing)
        return time * total[np.newaxis]


def _log_rung(angles: Numbers, chances: Numbers) -> Complex:
    """log(1 + chance (z - 1)): one record that may have rung, P x K; to full precision near z = 1."""
    back = 2 * np.sin(angles / 2)[:, np.newaxis] ** 2
    sine = np.sin(angles)[:, np.newaxis]
    size = np.log1p(-2 * chances * (1 - chances) * back) / 2
    result: Complex = size + 1j * np.arctan2(chances * sine, 1 - chances * back)
    return result


def _some(values: Complex) -> Complex:
    result: Complex = np.where(np.abs(values) < TINY, TINY, values)
    return result
