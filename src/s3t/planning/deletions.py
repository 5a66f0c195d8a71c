"""The distribution of deletion requests: probabilities of the next one to hit each slice of each shard."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from s3t.errors import PlanningError
from s3t.sequences.selector import SUM_TOLERANCE


@dataclass(frozen=True, kw_only=True, eq=False)
class Deletions:
    """The distribution of deletion requests over a system of m shards of L slices.

    A slice can be hit any number of times (sampling with replacement: far more records than deletions).

    Attributes:
        probabilities: m x L, probability of each slice to be hit by the next deletion, read-only; they sum to 1.
    """

    probabilities: NDArray[np.float64]

    def __post_init__(self) -> None:
        probabilities = np.array(self.probabilities, dtype=np.float64)
        if probabilities.ndim != 2 or probabilities.size == 0:
            raise PlanningError("the deletions", f"expected m rows of L numbers, not the shape {probabilities.shape}")
        if not (np.isfinite(probabilities) & (probabilities >= 0)).all():
            raise PlanningError("the deletions", "expected probabilities, finite and not negative")
        total = math.fsum(probabilities.flat)
        if abs(total - 1) > SUM_TOLERANCE:
            raise PlanningError("the deletions", f"all slices together sum to {total:.12g}, not to 1")
        probabilities /= total
        probabilities.flags.writeable = False
        object.__setattr__(self, "probabilities", probabilities)

    @property
    def shards(self) -> int:
        """M."""
        return int(self.probabilities.shape[0])

    @property
    def slices(self) -> int:
        """L."""
        return int(self.probabilities.shape[1])

    @classmethod
    def uniform(cls, shards: int, slices: int) -> Deletions:
        """Every slice equally likely, with replacement (the paper's assumption).

        >>> Deletions.uniform(2, 4).probabilities.tolist()
        [[0.125, 0.125, 0.125, 0.125], [0.125, 0.125, 0.125, 0.125]]
        """
        return cls(probabilities=np.full((shards, slices), 1 / (shards * slices)))

    @classmethod
    def from_prior(cls, prior: ArrayLike, *, shards: int) -> Deletions:
        """Declared probabilities of the slices, with replacement; shards are equally likely.

        >>> Deletions.from_prior([0.75, 0.25], shards=2).probabilities.tolist()
        [[0.375, 0.125], [0.375, 0.125]]

        Args:
            prior: L numbers that hold in every shard, or m rows of L; each row sums to 1.
        """
        rows = np.atleast_2d(np.asarray(prior, dtype=np.float64))
        if len(rows) not in (1, shards):
            raise PlanningError("the prior", f"it has {len(rows)} rows; expected {shards}, one a shard, or one")
        sums = np.array([math.fsum(row) for row in rows])
        if (abs(sums - 1) > SUM_TOLERANCE).any():
            raise PlanningError("the prior", "a row does not sum to 1")
        spread = rows / sums[:, np.newaxis] / shards
        return cls(probabilities=np.broadcast_to(spread, (shards, rows.shape[1])))
