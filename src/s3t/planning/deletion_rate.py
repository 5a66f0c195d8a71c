"""How many deletions a system survives (paper, Section 3.2 and Lemma 1).

A shard lives as long as one of its top slices, with which a sequence begins, has lost no record. The paper's deletion
rate is the expected number of deletions until every shard is dead, under uniform deletions. Here it is a random
number with its whole distribution, under any deletions; and beside it stands the first failure, which comes far sooner.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from s3t.errors import PlanningError
from s3t.planning.coupon_collector import CouponCollector, harmonic
from s3t.planning.deletions import Deletions
from s3t.planning.successive_sampling import SuccessiveSampling
from s3t.planning.targets import Cell, targets_of
from s3t.planning.waiting import Waiting

Tops = Sequence[Collection[int]]
"""For each shard, the slices with which some sequence begins."""


def deletion_rate(tops: Tops, deletions: Deletions) -> Waiting:
    """The number of deletions until every shard is dead.

    >>> rate = deletion_rate([{0, 1, 2}, {0, 1, 2}], Deletions.uniform(2, 3))
    >>> round(rate.mean, 9), rate.quantile(0.5)
    (14.7, 13)

    Args:
        tops: m collections of slices, none empty.
        deletions: where deletions fall, in m shards.

    Raises:
        PlanningError: the tops do not fit the shards and slices of `deletions`.
    """
    return waiting_for([[cell for cells in _cells(tops, deletions) for cell in cells]], deletions)


def first_failure(tops: Tops, deletions: Deletions) -> Waiting:
    """The number of deletions until the first shard is dead.

    >>> round(first_failure([{0}, {0}, {0}, {0}, {0}], Deletions.uniform(5, 6)).mean, 9)
    6.0

    Args:
        tops: m collections of slices, none empty.
        deletions: where deletions fall, in m shards.

    Raises:
        PlanningError: the tops do not fit the shards and slices of `deletions`.
    """
    return waiting_for(_cells(tops, deletions), deletions)


def paper_bound(shards: int, slices: int, budget: int) -> float:
    """The paper's Lemma 1: mL H(m min(B, L)) deletions, H(n) = 1 + 1/2 + ... + 1/n; exact for uniform deletions.

    >>> [round(paper_bound(5, 6, budget), 1) for budget in (1, 2, 6, 7)]
    [68.5, 87.9, 119.8, 119.8]

    Raises:
        PlanningError: a number is less than 1.
    """
    named = {"shards": shards, "slices": slices, "budget": budget}
    problems = [f"{name} is {value}, not at least 1" for name, value in named.items() if value < 1]
    if problems:
        raise PlanningError("the bound", problems)
    return shards * slices * harmonic(shards * min(budget, slices))


def sisa_bound(shards: int, slices: int) -> float:
    """The same for SISA, which has one sequence a shard.

    Raises:
        PlanningError: a number is less than 1.
    """
    return paper_bound(shards, slices, 1)


def _cells(tops: Tops, deletions: Deletions) -> list[list[Cell]]:
    """The top slices of every shard, each once.

    Raises:
        PlanningError: there are not m of them, one is empty, or one names a slice that is not there.
    """
    problems = []
    if len(tops) != deletions.shards:
        problems.append(f"they are of {len(tops)} shards; the deletions have {deletions.shards}")
    for shard, slices in enumerate(tops):
        if not slices:
            problems.append(f"shard {shard} has none")
        strange = sorted(index for index in set(slices) if not 0 <= index < deletions.slices)
        if strange:
            problems.append(f"shard {shard} names {strange[0]}; its slices are 0 to {deletions.slices - 1}")
    if problems:
        raise PlanningError("the top slices", problems)
    return [[(shard, index) for index in sorted(set(slices))] for shard, slices in enumerate(tops)]


def waiting_for(wanted: list[list[Cell]], deletions: Deletions) -> Waiting:
    """The number of deletions until all cells of one of the lists have been hit; each list is one whole."""
    wanted = [cells for cells in wanted if all(deletions.probabilities[cell] > 0 for cell in cells)]
    if not wanted:
        return Waiting(law=None)
    targets = targets_of(wanted, deletions)
    if deletions.records is None:
        return Waiting(law=CouponCollector(targets=targets, population=math.inf))
    if deletions.is_uniform_over_records:
        return Waiting(law=CouponCollector(targets=targets, population=float(deletions.records.sum())))
    needed = np.zeros(deletions.probabilities.shape, dtype=bool)
    for cell in (cell for cells in wanted for cell in cells):
        needed[cell] = True
    return Waiting(law=SuccessiveSampling.of(targets, deletions, needed))
