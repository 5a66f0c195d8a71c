"""An attacker who has the models of before and after a deletion, and guides one by the other (arXiv 2505.24379).

What the deletion took from the model is the difference of the two. So the attacker writes by

    scores = after + w (before - after)

in log-probabilities of the next token: w = 0 is the model after, w = 1 the one before, and more goes further the same
way. Only tokens count that the model before finds plausible, else rare tokens that both find unlikely would win.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from experiments.tofu.ensemble import Combine

AFTER, BEFORE = 0.0, 1.0
"""Weights that are no guidance."""


def guided(weight: float, *, plausible: float) -> Combine:
    """Scores of the attacker, from the groups (after, before).

    Args:
        weight: w.
        plausible: least probability of a token that counts, as a share of the likeliest one's, under the model before;
            0: all count. AFTER and BEFORE are left as they are.

    >>> after, before = (torch.tensor([[0.5, 0.4, 0.1]]).log(), torch.tensor([[0.4, 0.5, 0.1]]).log())
    >>> [int(guided(w, plausible=0.1)([after, before]).argmax()) for w in (0.0, 1.0, 2.0)]
    [0, 1, 1]
    """

    def combine(groups: Sequence[Tensor]) -> Tensor:
        after, before = groups
        if weight in (AFTER, BEFORE):
            return after if weight == AFTER else before
        scores = after + weight * (before - after)
        if plausible <= 0:
            return scores
        least = before.max(-1, keepdim=True).values + math.log(plausible)
        return scores.masked_fill(before < least, -torch.inf)

    return combine
