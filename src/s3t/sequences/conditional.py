"""Conditional sampling by deletion probability (paper, Appendix B.2), meant for B > L.

The paper gives no formula ("low deletion probabilities have a higher chance of being sampled"). Ours: the next slice is
drawn with weight 1 - q. Here q is the probability that a deletion among the remaining slices hits it.
"""

from __future__ import annotations

import random

from s3t.errors import SettingError
from s3t.sequences.selector import Order, Setting

MIN_TRIES, TRIES_A_SEQUENCE = 1000, 50
"""Samples in a row that may repeat earlier orders: 50 a wanted sequence, and at least 1000."""


def conditional(setting: Setting) -> tuple[Order, ...]:
    """B distinct orders, sampled slice by slice from the top; repeated ones are discarded. Draws from the seed.

    Raises:
        SettingError: too many samples in a row gave nothing new (see `MIN_TRIES`).

    >>> conditional(Setting(slices=2, budget=2, prior=(0.9, 0.1), seed=3))
    ((1, 0), (0, 1))
    """
    generator = random.Random(setting.seed)  # noqa: S311 - nothing secret
    orders: dict[Order, None] = {}
    tries, limit = 0, max(MIN_TRIES, TRIES_A_SEQUENCE * setting.budget)
    while len(orders) < setting.budget:
        before = len(orders)
        orders[_sample(setting.probabilities, generator)] = None
        tries = 0 if len(orders) > before else tries + 1
        if tries == limit:
            raise SettingError(
                f"conditional found {len(orders)} of {setting.budget} orders and then nothing new in {limit:,} "
                "samples; the others are too unlikely: lower the budget, or take survival or cyclic"
            )
    return tuple(orders)


def _sample(probabilities: tuple[float, ...], generator: random.Random) -> Order:
    remaining = list(range(len(probabilities)))
    order = []
    while len(remaining) > 1:
        mass = sum(probabilities[index] for index in remaining)
        weights = [1 - probabilities[index] / mass if mass > 0 else 1.0 for index in remaining]
        if sum(weights) <= 0:
            weights = [1.0] * len(remaining)
        order.append(remaining.pop(_drawn(weights, generator)))
    return (*order, *remaining)


def _drawn(weights: list[float], generator: random.Random) -> int:
    """An index, drawn in proportion to its weight."""
    point = generator.random() * sum(weights)
    for index, weight in enumerate(weights):
        point -= weight
        if point < 0:
            return index
    return max(range(len(weights)), key=lambda index: weights[index])  # rounding: the last step did not fall below 0
