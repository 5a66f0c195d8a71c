"""The warning about stages of too few optimiser steps for their labels.

A rule from measurement, not from theory: on banking77 with 77, 20 and 5 labels (`python -m benchmarks.optimiser_steps`,
docs/benchmarks.md), stages of fewer than 10 steps a label were up to tens of points worse than the same records with
more epochs, those of 12 and more hardly. Steps in all, or records a label, did not tell the three apart.
"""

from __future__ import annotations

import math

STEPS_A_LABEL = 10
"""Fewer are warned of."""


def optimiser_steps(records: int, *, epochs: int, batch_size: int) -> int:
    """Steps of a stage that goes through so many records an epoch.

    >>> optimiser_steps(100, epochs=4, batch_size=32)
    16
    """
    return epochs * math.ceil(records / batch_size)


def steps_wanted(labels: int) -> int:
    """The fewest steps that are not warned of.

    >>> steps_wanted(77)
    770
    """
    return STEPS_A_LABEL * labels
