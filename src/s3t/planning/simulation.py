"""Monte Carlo of whole systems without repair: when each shard's depth falls, until every shard is dead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s3t.errors import PlanningError
from s3t.planning.deletions import Deletions
from s3t.planning.first_hits import NEVER, Times, chunk, fall_times, first_hits
from s3t.sequences import Order

Orders = Sequence[Sequence[Order]]
"""Orders of each shard."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """N simulated systems of m shards of L slices.

    Attributes:
        falls: N x m x L; [n, s, k-1] is the deletion, counted over the whole system, after which shard s of system n is
            less than k slices deep. The largest integer means never.
    """

    falls: Times

    @property
    def deletion_rate(self) -> Times:
        """N numbers of deletions until every shard was dead; their mean is the paper's deletion rate."""
        return np.asarray(self.falls[:, :, 0].max(axis=1))

    @property
    def first_failure(self) -> Times:
        """N numbers of deletions until the first shard was dead."""
        return np.asarray(self.falls[:, :, 0].min(axis=1))

    @property
    def settled(self) -> Times:
        """N numbers: after this deletion the depth of no shard changes any more. The deletion rate, unless a shard
        lives for ever."""
        last = np.zeros(len(self.falls), dtype=np.int64)
        for depth in range(self.falls.shape[2]):
            falls = self.falls[:, :, depth]
            np.maximum(last, np.where(falls == NEVER, 0, falls).max(axis=1), out=last)
        return last

    def retained(self, deletions: Sequence[int]) -> NDArray[np.float64]:
        """R x (L + 1): the share of shards that are at least k slices deep, k from 0, after r deletions in the system.

        The r's are in ascending order.
        """
        trials, shards, slices = self.falls.shape
        survival = np.ones((len(deletions), slices + 1))
        for depth in range(1, slices + 1):
            # Into which gap between two r's each fall comes; one at r is a loss already at r.
            gaps = np.searchsorted(deletions, self.falls[:, :, depth - 1].reshape(-1))
            lost = np.bincount(gaps, minlength=len(deletions) + 1)[: len(deletions)].cumsum()
            survival[:, depth] = 1 - lost / (trials * shards)
        return survival


def simulate(orders: Orders, deletions: Deletions, *, trials: int = 10_000, seed: int = 0) -> Simulation:
    """Simulate systems from full depth until every shard is dead. Deletions fall with replacement (N >> r).

    >>> from s3t.sequences import Setting, cyclic
    >>> system = simulate([cyclic(Setting(slices=6, budget=3))] * 5, Deletions.uniform(5, 6), trials=20_000)
    >>> bool(abs(system.deletion_rate.mean() - 99.5) < 2)
    True
    """
    check_system(orders, deletions, trials=trials)
    shards, slices = deletions.probabilities.shape
    generator = np.random.default_rng(seed)
    falls = np.empty((trials, shards, slices), dtype=np.int64)
    step = chunk(shards * slices)
    for start in range(0, trials, step):
        part = falls[start : start + step]
        hits = first_hits(deletions.probabilities.reshape(-1), trials=len(part), generator=generator)
        for shard, shard_orders in enumerate(orders):
            part[:, shard] = fall_times(shard_orders, hits[:, shard * slices : (shard + 1) * slices])
    return Simulation(falls=falls)


def check_system(orders: Orders, deletions: Deletions, *, trials: int) -> None:
    """Checks that orders and deletions are of one system, and can be simulated."""
    shards, slices = deletions.probabilities.shape
    problems = [] if trials >= 1 else [f"{trials} trials: give at least 1"]
    if len(orders) != shards:
        problems.append(f"orders are given for {len(orders)} shards, deletions for {shards}")
    expected = list(range(slices))
    for shard, shard_orders in enumerate(orders):
        if not shard_orders or any(sorted(order) != expected for order in shard_orders):
            problems.append(f"shard {shard} has no orders, or one that is not a permutation of 0..{slices - 1}")
    if problems:
        raise PlanningError("the system to simulate", problems)
