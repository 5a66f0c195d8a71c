"""Sets of slices of which one must be hit entirely.

The deletion rate waits for one target, the top slices of all shards; first failure for one of m, each shard's top
slices. Equal slices of a target, and equal targets, are stored once and counted, so that a uniform system of any size
costs as much as a small one.

Shapes: K kinds of slices, one target after the other; G kinds of targets; P points.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.planning.deletions import Deletions

Numbers = NDArray[np.float64]
Cell = tuple[int, int]
"""A shard and a slice of it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Targets:
    """Targets, at least one, which can all be hit.

    Attributes:
        probabilities: of each kind of slice, K, positive.
        records: of each kind of slice, K; zeros when sampling with replacement.
        times: how often a kind of slice is in its target, K.
        starts: where each target's kinds begin, G.
        copies: how many targets are like this one, G.
    """

    probabilities: Numbers
    records: Numbers
    times: Numbers
    starts: NDArray[np.int64]
    copies: Numbers

    @property
    def sizes(self) -> Numbers:
        """How many slices each target has, G."""
        sizes: Numbers = np.add.reduceat(self.times, self.starts)
        return sizes

    @property
    def owner(self) -> NDArray[np.int64]:
        """The target of each kind of slice, K."""
        return np.repeat(np.arange(len(self.starts)), np.diff([*self.starts, len(self.times)]))

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        """Sums over each target's slices, P x G, of what holds for each of its kinds, P x K."""
        weighted = values * self.times
        sums: NDArray[Any] = np.add.reduceat(weighted, self.starts, axis=-1)
        return sums

    def log_alive(self, times_p: Numbers) -> tuple[Numbers, Numbers]:
        """Logarithms of the chance that a target is not complete, P x G, and that none is, P.

        Args:
            times_p: when to look, P. Slices are hit independently, a slice of probability p with the rate p (Poisson
                with replacement; without, its records have clocks that ring with the rate p over records).
        """
        with np.errstate(divide="ignore"):
            hit = self.sums(log_one_minus_exp(np.multiply.outer(times_p, self.probabilities)))
            incomplete = log_one_minus_exp(-hit)
            return incomplete, incomplete @ self.copies


def targets_of(wanted: Iterable[Iterable[Cell]], deletions: Deletions) -> Targets:
    """The targets, equal ones counted.

    Args:
        wanted: the slices of each target, no slice twice, at least one, all of positive probability.
        deletions: where deletions fall.
    """
    counts: Counter[bytes] = Counter()
    for cells in wanted:
        where = tuple(np.array(list(cells)).T)
        kinds = np.zeros((len(where[0]), 2))
        kinds[:, 0] = deletions.probabilities[where]
        if deletions.records is not None:
            kinds[:, 1] = deletions.records[where]
        unique, times = np.unique(kinds, axis=0, return_counts=True)
        counts[np.column_stack([unique, times]).tobytes()] += 1
    tables = [np.frombuffer(table).reshape(-1, 3) for table in counts]
    rows = np.concatenate(tables)
    return Targets(
        probabilities=rows[:, 0],
        records=rows[:, 1],
        times=rows[:, 2],
        starts=np.cumsum([0, *map(len, tables)])[:-1],
        copies=np.array(list(counts.values()), dtype=np.float64),
    )


def log_one_minus_exp(x: Numbers) -> Numbers:
    """log(1 - exp(-x)) for x >= 0, to full relative precision at both ends; minus infinity at 0."""
    near = np.log(-np.expm1(-np.minimum(x, 1)))
    far = np.log1p(-np.exp(-np.maximum(x, 0.5)))
    result: Numbers = np.where(x < math.log(2), near, far)
    return result
