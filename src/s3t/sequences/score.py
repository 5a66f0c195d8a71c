"""The paper's score of an order, and how far orders lie apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from s3t.sequences.selector import Order

Floats = npt.NDArray[np.float64]


def scores(orders: Sequence[Order], probabilities: Sequence[float], deletions: int) -> Floats:
    """Each order's score: the sum over i of i * (1 - p_1 - ... - p_i)^t (paper, Section 3.3 and Appendix B.2).

    Returns:
        B numbers. (p_i is the probability of the i-th slice of the order.)

    >>> scores([(2, 1, 0)], (0.5, 0.4, 0.1), 1).round(6).tolist()
    [1.9]
    """
    lost = np.cumsum(np.asarray(probabilities)[np.asarray(orders)], axis=1)
    depth = np.arange(1, lost.shape[1] + 1)
    return np.asarray((depth * power(np.maximum(1 - lost, 0), deletions)).sum(axis=1))


def power(base: Floats, exponent: int) -> Floats:
    """Integer power by repeated squaring: products alone, so the same bits on every machine (libm's pow differs)."""
    result = np.ones_like(base)
    while exponent:
        if exponent & 1:
            result = result * base
        base = base * base
        exponent >>= 1
    return result


def mean_distance(orders: Sequence[Order]) -> float:
    """Mean Hamming distance over all pairs of orders: positions at which they differ, 0..L; 0 for a single order.

    >>> mean_distance([(0, 1, 2), (1, 2, 0), (0, 2, 1)])
    2.3333333333333335
    """
    if len(orders) < 2:
        return 0.0
    columns = np.asarray(orders)
    slices = columns.shape[1]
    pairs = len(orders) * (len(orders) - 1) // 2
    agreeing = 0
    for position in range(slices):
        counts = np.bincount(columns[:, position], minlength=slices)
        agreeing += int((counts * (counts - 1) // 2).sum())
    return float(slices - agreeing / pairs)
