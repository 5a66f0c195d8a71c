"""Bipartite-matching based selection, BMS (paper, Algorithm 2)."""

from __future__ import annotations

import numpy as np

from s3t.errors import SettingError
from s3t.sequences.score import power, scores
from s3t.sequences.selector import Order, Setting


def bms(setting: Setting) -> tuple[Order, ...]:
    """L orders, one for each slice on top, extended level by level by a maximum-weight matching; the best B by score.

    No slice is twice at one position (paper, Lemma 3). An edge's weight in the paper is the score of the longer order.
    The order's score so far is the same for all its edges and cannot change a matching, nor can the factor i of a whole
    level. So only (1 - p_1 - ... - p_i)^t is computed, for all orders and slices at once. Sorted and reduced by its
    rows and columns, the same matching (of ties, another) is found in half the time.

    Raises:
        SettingError: B > L.

    >>> bms(Setting(slices=3, budget=3, prior=(0.5, 0.4, 0.1), deletions=2))
    ((2, 1, 0), (0, 2, 1), (1, 0, 2))
    """
    from scipy.optimize import linear_sum_assignment  # here: importing it takes a third of a second

    problem = bms_problem(setting)
    if problem is not None:
        raise SettingError(problem)
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


def bms_problem(setting: Setting) -> str | None:
    """The reason why BMS has no orders for the setting; None if it has."""
    slices, budget = setting.slices, setting.budget
    if budget > slices:
        return (
            f"bms gives at most {slices} orders of {slices} slices, not {budget}; lower the budget, or take survival, "
            "conditional or cyclic"
        )
    return None
