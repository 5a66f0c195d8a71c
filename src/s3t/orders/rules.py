"""Selectors that follow a rule: the paper's, and the baselines that it compares.

`cyclic` (Section 3.3, Algorithm 1) departs from the paper twice. For B < L the paper's first B rotations are adjacent,
and their prefixes overlap; ours are spaced L/B apart, which keeps the prefixes disjoint. For B > L the paper's suffix
rotations are cut off at B, so the last ones favour some slices. Ours are dealt round-robin over the first slice.
`cyclic_adjacent` is the paper's.

`conditional` (Appendix B.2) is meant for B > L. The paper gives no formula ("low deletion probabilities have a higher
chance of being sampled"). Ours: the next slice is drawn with weight 1 - q. Here q is the probability that a deletion
among the remaining slices hits it.
"""

from __future__ import annotations

import itertools
import math
import random

import numpy as np

from s3t.core import Order
from s3t.errors import SettingError
from s3t.orders.setting import Setting, power, scores

MIN_TRIES, TRIES_A_SEQUENCE = 1000, 50
"""Samples of `conditional` in a row that may repeat earlier orders: 50 a wanted sequence, and at least 1000."""


def cyclic(setting: Setting) -> tuple[Order, ...]:
    """Exactly B distinct orders; every slice is at the top equally often, give or take one. Knows no prior.

    >>> cyclic(Setting(slices=4, budget=4))
    ((0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2))
    >>> cyclic(Setting(slices=4, budget=2))
    ((0, 1, 2, 3), (2, 3, 0, 1))
    >>> cyclic(Setting(slices=3, budget=5))
    ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2))
    """
    slices, budget = setting.slices, setting.budget
    numbers = (index * slices // budget if budget <= slices else index for index in range(budget))
    return tuple(order_of_number(slices, number) for number in numbers)


def cyclic_adjacent(setting: Setting) -> tuple[Order, ...]:
    """The paper's Algorithm 1 to the letter: the first B of the right rotations, then of their suffixes' rotations.

    >>> cyclic_adjacent(Setting(slices=4, budget=2))
    ((0, 1, 2, 3), (3, 0, 1, 2))
    >>> cyclic_adjacent(Setting(slices=3, budget=5))
    ((0, 1, 2), (2, 0, 1), (1, 2, 0), (0, 2, 1), (2, 1, 0))
    """
    orders = dict.fromkeys(_right_rotations(tuple(range(setting.slices)))[: setting.budget])
    for fixed in range(1, setting.slices):
        for order in tuple(orders):
            if len(orders) >= setting.budget:
                break
            orders |= dict.fromkeys(order[:fixed] + suffix for suffix in _right_rotations(order[fixed:]))
    return tuple(orders)[: setting.budget]


def order_of_number(slices: int, number: int) -> Order:
    """A one-to-one numbering of all L! orders from 0; each L from a multiple of L have L different slices on top.

    The number's digits in base L, L-1, ..., lowest first, say how far each suffix is rotated.
    """
    order, position = list(range(slices)), 0
    while number:
        number, turn = divmod(number, slices - position)
        suffix = order[position:]
        order[position:] = suffix[turn:] + suffix[:turn]
        position += 1
    return tuple(order)


def _right_rotations(order: Order) -> list[Order]:
    return [order[len(order) - turn :] + order[: len(order) - turn] for turn in range(len(order))]


def sorted_cyclic(setting: Setting) -> tuple[Order, ...]:
    """Rotations of the slices sorted from the least to the most likely to be deleted, equals by index.

    Which rotations, and what comes after L of them, is as in `cyclic`.

    >>> sorted_cyclic(Setting(slices=3, budget=3, prior=(0.5, 0.4, 0.1)))
    ((2, 1, 0), (1, 0, 2), (0, 2, 1))
    """
    probabilities = setting.probabilities
    ranked = sorted(range(setting.slices), key=lambda index: (probabilities[index], index))
    return tuple(tuple(ranked[rank] for rank in order) for order in cyclic(setting))


def full(setting: Setting) -> tuple[Order, ...]:
    """All L! orders; the budget must be L!, and L at most 8.

    >>> len(full(Setting(slices=4, budget=24)))
    24
    """
    return tuple(itertools.permutations(range(setting.slices)))


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


def conditional(setting: Setting) -> tuple[Order, ...]:
    """B distinct orders, sampled slice by slice from the top; repeated ones are discarded. Draws from the seed.

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
        point = generator.random() * sum(weights)
        # Where rounding leaves the point beyond all weights, the largest.
        drawn = max(range(len(weights)), key=lambda place: weights[place])
        for place, weight in enumerate(weights):
            point -= weight
            if point < 0:
                drawn = place
                break
        order.append(remaining.pop(drawn))
    return (*order, *remaining)


def bms(setting: Setting) -> tuple[Order, ...]:
    """L orders, one for each slice on top, extended level by level by a maximum-weight matching; the best B by score.

    No slice is twice at one position (paper, Lemma 3). An edge's weight in the paper is the score of the longer order.
    The order's score so far is the same for all its edges and cannot change a matching, nor can the factor i of a whole
    level. So only (1 - p_1 - ... - p_i)^t is computed, for all orders and slices at once. Sorted and reduced by its
    rows and columns, the same matching (of ties, another) is found in half the time.

    >>> bms(Setting(slices=3, budget=3, prior=(0.5, 0.4, 0.1), deletions=2))
    ((2, 1, 0), (0, 2, 1), (1, 0, 2))
    """
    from scipy.optimize import linear_sum_assignment  # here: importing it takes a third of a second

    slices = setting.slices
    probabilities = np.asarray(setting.probabilities)
    ranked = np.argsort(probabilities, kind="stable")  # from here on, slices are called by their rank
    prior = probabilities[ranked]
    orders = np.empty((slices, slices), dtype=np.int64)
    orders[:, 0] = np.arange(slices)
    survival = 1 - prior  # of each order: the chance that a deletion misses it
    barred = np.diag(np.full(slices, np.inf))  # slices that an order has already
    for position in range(1, slices):
        rows = np.argsort(-survival, kind="stable")
        cost = barred[rows] - power(np.maximum(survival[rows, None] - prior, 0), setting.deletions)
        cost -= cost.min(axis=1, keepdims=True)
        cost -= cost.min(axis=0)
        matched = linear_sum_assignment(cost)[1]
        orders[rows, position] = matched
        survival[rows] -= prior[matched]
        barred[rows, matched] = np.inf
    by_top = ranked[orders][np.argsort(ranked)]
    all_orders: list[Order] = [tuple(order) for order in by_top.tolist()]
    best = np.argsort(-scores(all_orders, setting.probabilities, setting.deletions), kind="stable")
    return tuple(all_orders[index] for index in best[: setting.budget])
