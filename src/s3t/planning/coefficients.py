"""Coefficients of generating functions, by Cauchy's integral on the unit circle.

A generating function whose coefficients are probabilities of a count with standard deviation s is, to double precision,
zero beyond an arc of about 9/s; and with n points on the circle a coefficient is read off exactly, except that those n
counts away are added to it. So a few dozen points give all coefficients within a few s of the mean, however large the
count is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Complex = NDArray[np.complex128]

ARC = 32
"""Points that are evaluated at once."""
NEGLIGIBLE = 1e-18
LARGEST_TRANSFORM = 1 << 16


def odd(size: float) -> int:
    """The next odd number of points: -1, where a binomial's generating function may vanish, is then not among them."""
    return int(np.ceil(size)) | 1


def coefficients(function: Callable[[Numbers], Complex], counts: NDArray[np.int64], *, size: int) -> Numbers:
    """The coefficients of z**count, each plus those of z**(count + k * size) for every k.

    Args:
        function: angles of z, P, from 0 upwards, to values, F x P: F functions with real coefficients.
        counts: whole numbers, R.
        size: points on the circle, odd.

    Returns:
        F x R.

    >>> binomial = lambda angles: ((1 + np.exp(1j * angles)) / 2)[np.newaxis] ** 3
    >>> (8 * coefficients(binomial, np.arange(4), size=5)).round(9).tolist()
    [[1.0, 3.0, 3.0, 1.0]]
    """
    half = size // 2 + 1
    arcs = []
    for start in range(0, half, ARC):
        arcs.append(function(2 * math.pi / size * np.arange(start, min(start + ARC, half), dtype=np.float64)))
        if np.abs(arcs[-1]).max() < NEGLIGIBLE:
            break
    values = np.concatenate(arcs, axis=1)
    # The points left out are zero, and those with negative angles are the conjugates.
    if size <= LARGEST_TRANSFORM:
        transformed: Numbers = np.fft.irfft(values.conj(), n=size, axis=1)
        return transformed[:, counts % size]
    turns = (counts % size)[:, np.newaxis] * np.arange(values.shape[1]) % size
    values[:, 1:] *= 2
    result: Numbers = (values @ np.exp(-2j * np.pi / size * turns).T).real / size
    return result
