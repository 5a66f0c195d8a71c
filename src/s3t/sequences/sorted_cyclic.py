"""Cyclic rotation after sorting by deletion probability (paper, Appendix C)."""

from __future__ import annotations

from s3t.sequences.cyclic import cyclic
from s3t.sequences.selector import Order, Setting


def sorted_cyclic(setting: Setting) -> tuple[Order, ...]:
    """Rotations of the slices sorted from the least to the most likely to be deleted, equals by index.

    Which rotations, and what comes after L of them, is as in `cyclic`.

    >>> sorted_cyclic(Setting(slices=3, budget=3, prior=(0.5, 0.4, 0.1)))
    ((2, 1, 0), (1, 0, 2), (0, 2, 1))
    """
    probabilities = setting.probabilities
    ranked = sorted(range(setting.slices), key=lambda index: (probabilities[index], index))
    return tuple(tuple(ranked[rank] for rank in order) for order in cyclic(setting))
