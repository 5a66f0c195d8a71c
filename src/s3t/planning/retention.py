"""Depth of a shard after r deletions in it, simulated: P[depth >= k], for given orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s3t.planning.first_hits import chunk, fall_times, first_hits
from s3t.sequences import Order, Setting

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class Retention:
    """P[depth >= k after r deletions in the shard], from simulated histories.

    Attributes:
        probabilities: R x (L + 1), for k from 0 to L.
        trials: histories.
    """

    probabilities: Floats
    trials: int

    @property
    def expected_depth(self) -> Floats:
        """R numbers, 0..L: the sum of the probabilities over k >= 1."""
        return np.asarray(self.probabilities[:, 1:].sum(axis=1))

    @property
    def half_width(self) -> Floats:
        """Half of the 95 % interval of each expected depth, R."""
        # E[depth^2] is the sum of (2k - 1) P[depth >= k].
        at_least = self.probabilities[:, 1:]
        square = at_least @ (2 * np.arange(at_least.shape[1]) + 1)
        return np.asarray(1.96 * np.sqrt(np.maximum(square - self.expected_depth**2, 0) / self.trials))


def retention(
    orders: Sequence[Order],
    deletions: Sequence[int],
    *,
    prior: Sequence[float] | None = None,
    trials: int = 100_000,
    seed: int = 0,
) -> Retention:
    """Probabilities that a shard with these orders is still k slices deep after r deletions in it.

    >>> from s3t.sequences import Setting, cyclic
    >>> retention(cyclic(Setting(slices=4, budget=4)), [0, 1]).expected_depth.tolist()
    [4.0, 3.0]

    Args:
        deletions: r's, each at least 0; deletions fall independently of each other (data far larger than r).
        prior: L probabilities of the slices; None: uniform.
    """
    declared = None if prior is None else tuple(prior)
    # Checks orders and prior.
    setting = Setting(
        slices=len(orders[0]), budget=len(set(orders)), prior=declared, given=tuple(dict.fromkeys(orders))
    )
    probabilities = np.asarray(setting.probabilities)
    generator = np.random.default_rng(seed)
    survived = np.zeros((len(deletions), len(probabilities)))
    step = chunk(len(probabilities))
    for start in range(0, trials, step):
        hits = first_hits(probabilities, trials=min(step, trials - start), generator=generator)
        falls = fall_times(setting.given, hits)
        for row, count in enumerate(deletions):
            survived[row] += (falls > count).sum(axis=0)
    survival = np.concatenate([np.ones((len(deletions), 1)), survived / trials], axis=1)
    return Retention(probabilities=survival, trials=trials)


def full_budget_depth(deletions: Sequence[int], *, slices: int, prior: Sequence[float] | None = None) -> Floats:
    """The expected depth with all L! orders, which no budget exceeds: R numbers.

    Then all slices that have not been hit make a prefix. Their expected number is the sum of (1 - p)^r.

    >>> full_budget_depth([1, 2], slices=4).tolist()
    [3.0, 2.25]
    """
    probabilities = np.full(slices, 1 / slices) if prior is None else np.asarray(prior)
    spared = (1 - probabilities)[None, :] ** np.asarray(deletions)[:, None]
    return np.asarray(spared.sum(axis=1))
