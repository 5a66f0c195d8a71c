"""What may be chance: intervals over seeds, and tasks on which a model is hardly better than a guess."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from scipy.stats import t

CONFIDENCE = 0.95
CLEARLY = 0.03
"""A task says something where full training is better than a guess by more than this."""


def interval(values: Sequence[float]) -> list[float] | None:
    """Of the mean, at CONFIDENCE; None of a single value.

    >>> [round(end, 2) for end in interval([1.0, 2.0, 3.0])]
    [-0.48, 4.48]
    """
    if len(values) < 2:
        return None
    half = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * statistics.stdev(values) / len(values) ** 0.5
    mean = statistics.fmean(values)
    return [mean - half, mean + half]
