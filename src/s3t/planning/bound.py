"""The paper's Lemma 1."""

from __future__ import annotations

import math


def harmonic(number: int) -> float:
    """1 + 1/2 + ... + 1/number."""
    return math.fsum(1 / index for index in range(1, number + 1))


def paper_bound(shards: int, slices: int, budget: int) -> float:
    """Lemma 1: mL H(m min(B, L)) deletions until every shard is dead, expected; exact for uniform deletions.

    >>> [round(paper_bound(5, 6, budget), 1) for budget in (1, 2, 6, 7)]
    [68.5, 87.9, 119.8, 119.8]
    """
    return shards * slices * harmonic(shards * min(budget, slices))
