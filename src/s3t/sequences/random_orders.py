"""Uniform random orders: the paper's plainest baseline (Section 3.3)."""

from __future__ import annotations

import math
import random

from s3t.sequences.cyclic import order_of_number
from s3t.sequences.selector import Order, Setting


def random_orders(setting: Setting) -> tuple[Order, ...]:
    """B distinct orders, every set of B as likely as any other. Knows no prior; draws from the seed.

    >>> len(set(random_orders(Setting(slices=3, budget=6, seed=1))))
    6
    """
    generator = random.Random(setting.seed)  # noqa: S311 - nothing secret
    total = math.factorial(setting.slices)
    # Distinct numbers by rejection; where most are wanted, those left out are drawn instead, so few draws are in vain.
    most = 2 * setting.budget > total
    drawn: dict[int, None] = {}
    while len(drawn) < (total - setting.budget if most else setting.budget):
        drawn[generator.randrange(total)] = None
    numbers = list(drawn) if not most else [number for number in range(total) if number not in drawn]
    if most:
        generator.shuffle(numbers)
    return tuple(order_of_number(setting.slices, number) for number in numbers)
