"""How many deletions a system takes: a random number, with its mean, deviation, distribution and quantiles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s3t.errors import PlanningError

MOST = 2**53
"""Numbers of deletions up to here are exact as floats."""


class Law(Protocol):
    """The law of a number of deletions that is finite with certainty, and at least 1."""

    def mean(self) -> float:
        """The expected number."""
        ...

    def std(self) -> float:
        """Its standard deviation."""
        ...

    def distribution(self, deletions: NDArray[np.int64]) -> NDArray[np.float64]:
        """The chance that the number is at most each of `deletions`; the same shape."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Waiting:
    """The number T of deletions until something happens.

    Attributes:
        law: of T; None when it never happens.
    """

    law: Law | None

    @cached_property
    def mean(self) -> float:
        """E[T], in deletions; relative error at most 1e-9. Infinite when it never happens."""
        return math.inf if self.law is None else max(1.0, self.law.mean())

    @cached_property
    def std(self) -> float:
        """The standard deviation of T, in deletions. Not a number when it never happens."""
        return math.nan if self.law is None else self.law.std()

    def distribution(self, deletions: ArrayLike) -> NDArray[np.float64]:
        """P(T <= r) for every r of `deletions`, in its shape; absolute error at most 1e-9.

        Raises:
            PlanningError: something other than whole numbers from 0 to 2**53.
        """
        counts = np.asarray(deletions)
        if counts.size == 0:
            return np.zeros(counts.shape)
        if counts.dtype.kind not in "iu" or (counts < 0).any() or (counts > MOST).any():
            raise PlanningError("the numbers of deletions", ["expected whole numbers from 0 to 2**53"])
        if self.law is None:
            return np.zeros(counts.shape)
        return self.law.distribution(counts.astype(np.int64))

    def quantile(self, q: float) -> int:
        """The smallest r with P(T <= r) >= q.

        Args:
            q: above 0 and below 1. Beyond 1 - 1e-9 the distribution's own error decides.

        Raises:
            PlanningError: `q` is out of range, or it never happens, or takes more than 2**53 deletions.
        """
        if not 0 < q < 1:
            raise PlanningError("the quantile", [f"q is {q}, not between 0 and 1"])
        if self.law is None:
            raise PlanningError("the quantile", ["it never happens: a slice that would have to be hit cannot be"])
        low, high = 0, min(math.ceil(self.mean), MOST)
        while self._at(high) < q:
            if high == MOST:
                raise PlanningError("the quantile", [f"it takes more than 2**53 deletions (mean {self.mean:.3g})"])
            low, high = high, min(2 * high, MOST)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._at(middle) < q else (low, middle)
        return high

    def _at(self, deletions: int) -> float:
        return float(self.distribution(np.array(deletions)))
