"""Integrals over all times, to nearly full precision."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

BEGIN = 1e-15
"""Earlier times are left out. Times are counted in deletions, so this is what is lost, in deletions."""
COARSEST, FINEST = 0.25, 2.0**-12
AGREEMENT = 1e-12
BATCH = 256


def integral(function: Callable[[Numbers], Numbers], *, end: float, agreement: float = AGREEMENT) -> float:
    """The integral of a bounded, analytic function from 0 to infinity.

    The trapezoidal rule in the logarithm of time converges exponentially for such functions; the step is halved until
    two results agree.

    Args:
        function: times, P, to values, P.
        end: the time after which the function is negligible.
        agreement: how far two results may differ, relatively.

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
        if abs(total * step - before) <= agreement * abs(before):
            return total * step
    raise ArithmeticError(f"no agreement between steps: {before} and {total * step}")


def _sum(function: Callable[[Numbers], Numbers], points: Numbers) -> float:
    """The sum over points in the logarithm of time, batch by batch to bound the memory."""
    times = np.exp(points)
    batches = [times[start : start + BATCH] for start in range(0, len(times), BATCH)]
    return math.fsum(float(function(batch) @ batch) for batch in batches)
