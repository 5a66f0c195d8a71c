"""Bipartite-matching based selection, BMS (paper, Algorithm 2)."""

from __future__ import annotations

import numpy as np

from s3t.errors import SettingError
from s3t.sequences.score import power, scores
from s3t.sequences.selector import Order, Setting


def bms(setting: Setting) -> tuple[Order, ...]:
    """L orders, one for each slice on top, extended level by level by a maximum-weight matching; the best B by score.

    No slice is twice at one position (paper, Lemma 3). An edge's weight in the paper is the score of the longer order.
    What the order has scored already is the same for all its edges and cannot change a matching, so only what the next
    slice adds is computed: i * (1 - p_1 - ... - p_i)^t, for all orders and slices at once.

    Raises:
        SettingError: B > L.

    >>> bms(Setting(slices=3, budget=3, prior=(0.5, 0.4, 0.1), deletions=2))
    ((2, 0, 1), (1, 2, 0), (0, 1, 2))
    """
    from scipy.optimize import linear_sum_assignment  # here: importing it takes a third of a second

    problem = bms_problem(setting)
    if problem is not None:
        raise SettingError(problem)
    slices = setting.slices
    prior = np.asarray(setting.probabilities)
    orders = np.empty((slices, slices), dtype=np.int64)
    orders[:, 0] = np.arange(slices)
    left = 1 - prior  # of each order: the chance that a deletion misses it
    taken = np.eye(slices, dtype=bool)
    rows = np.arange(slices)
    for depth in range(2, slices + 1):
        gain = depth * power(np.maximum(left[:, None] - prior[None, :], 0), setting.deletions)
        chosen = linear_sum_assignment(np.where(taken, -np.inf, gain), maximize=True)[1]
        orders[:, depth - 1] = chosen
        left = left - prior[chosen]
        taken[rows, chosen] = True
    found: list[Order] = [tuple(order) for order in orders.tolist()]
    best = np.argsort(-scores(found, setting.probabilities, setting.deletions), kind="stable")
    return tuple(found[index] for index in best[: setting.budget])


def bms_problem(setting: Setting) -> str | None:
    """Why there are no such orders, or None."""
    slices, budget = setting.slices, setting.budget
    if budget > slices:
        return (
            f"bms gives at most {slices} orders of {slices} slices, not {budget}; lower the budget, or take survival, "
            "conditional or cyclic"
        )
    return None
