"""Monte Carlo of systems whose shards are forests, repaired as needed after every deletion.

All simulated systems take a step at once. A shard has one main chain and its spares, so a state is a small array; the
rules are those of `forests.AsNeeded`, which tests compare state by state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s3t.errors import PlanningError
from s3t.forests import AsNeeded, StageCosts
from s3t.planning.deletions import Deletions
from s3t.progress import SILENT, Steps

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class GrownSimulation:
    """N simulated systems of m shards over R deletions.

    Attributes:
        training: cost of the first training, all shards, in the unit of the stages' costs.
        cost: N, cost of all repairs, in that unit.
        mean_depth: N, slices that serve, averaged over shards and over the moments after each repair.
        hit_depth: N, the hit shard's depth right after the hit, before its repair, averaged over the deletions.
        dead_share: share of the deletions that left the hit shard dead until its repair.
        least_hit_depth: least depth of a hit shard in all systems.
    """

    training: float
    cost: Floats
    mean_depth: Floats
    hit_depth: Floats
    dead_share: float
    least_hit_depth: int

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t simulate --repair as-needed --json`, without the unit of costs."""
        each = {"cost": self.cost, "mean_depth": self.mean_depth, "hit_depth": self.hit_depth}
        return {
            "training_cost": self.training,
            **{name: {"mean": float(values.mean()), "std": float(values.std())} for name, values in each.items()},
            "dead_share": self.dead_share,
            "least_hit_depth": self.least_hit_depth,
        }


def cost_of_a_hit(policy: AsNeeded, costs: StageCosts) -> float:
    """Expected cost of the repair after a hit of a shard, hits being uniform. Exact, after however many hits.

    After a repair the main chain has its depth and every spare its own, for the longest of what a hit leaves becomes
    the main chain. Chains share no stage. A stage of depth k is lost with a chance of k / L, and then trained again.

    >>> cost_of_a_hit(AsNeeded(depth=2), StageCosts((1.0, 2.0, 3.0)))  # (1 + 2 2 + 1) / 3
    2.0
    """
    policy.check(costs.slices)
    lost = [depth * cost for depth, cost in enumerate(costs.by_depth, start=1)]
    return (math.fsum(lost[: policy.depth]) + policy.spares * math.fsum(lost[: policy.spare_depth])) / costs.slices


def simulate_growth(
    policy: AsNeeded,
    costs: StageCosts,
    deletions: Deletions,
    *,
    over: int,
    trials: int = 1_000,
    seed: int = 0,
    steps: Steps = SILENT,
) -> GrownSimulation:
    """Simulate systems over R = `over` deletions, with replacement; the hit shard is repaired after each.

    >>> found = simulate_growth(AsNeeded(depth=2), StageCosts((1.0, 1.0, 1.0)), Deletions.uniform(1, 3), over=100)
    >>> found.training, found.dead_share, float(found.mean_depth.mean())
    (3.0, 0.0, 2.0)
    """
    shards, slices = deletions.probabilities.shape
    policy.check(slices)
    problems = [] if costs.slices == slices else [f"costs of {costs.slices} depths for shards of {slices} slices"]
    problems += [] if over >= 1 else [f"{over} deletions: give at least 1"]
    problems += [] if trials >= 1 else [f"{trials} trials: give at least 1"]
    if problems:
        raise PlanningError("the system to simulate", problems)
    forest = _Forests(policy, costs, deletions.probabilities, trials * shards)
    training = forest.grow(np.arange(trials * shards))[:shards].sum()
    generator = np.random.default_rng(seed)
    chances = np.cumsum(deletions.probabilities.reshape(-1))
    total, hit_total, cost = np.zeros(trials), np.zeros(trials), np.zeros(trials)
    dead, least = 0, slices
    first_rows = np.arange(trials) * shards
    for _ in range(over):
        cells = np.searchsorted(chances, generator.random(trials) * chances[-1], side="right")
        where, index = np.divmod(np.minimum(cells, len(chances) - 1), slices)
        rows = first_rows + where
        forest.hit(rows, index)
        depths = forest.length[rows].max(axis=1)
        hit_total += depths
        dead += int((depths == 0).sum())
        least = min(least, int(depths.min()))
        cost += forest.grow(rows)
        total += forest.length[:, 0].reshape(trials, shards).mean(axis=1)
        steps.advance(1)
    return GrownSimulation(
        training=float(training),
        cost=cost,
        mean_depth=total / over,
        hit_depth=hit_total / over,
        dead_share=dead / (over * trials),
        least_hit_depth=least,
    )


class _Forests:
    """S shards of C chains each, the main one first after a repair.

    Attributes:
        place: S x C x L, where a slice lies in a chain, 0 at its top; L where it is not in it.
        length: S x C, slices of each chain.
    """

    def __init__(self, policy: AsNeeded, costs: StageCosts, chances: Floats, count: int) -> None:
        """Nothing is trained yet.

        Args:
            chances: m x L, of the slices of each shard to be hit next; one system's shards follow another's.
        """
        self._policy, slices = policy, chances.shape[1]
        self._slices, self._kept = slices, policy.least_after_hit(slices)
        # m x L: 0 for the least chance of a shard, equal for equal ones
        self._likely = np.array([np.unique(row, return_inverse=True)[1] for row in chances])
        self._spent = np.concatenate([[0.0], np.cumsum(costs.by_depth)])
        """Cost of a chain's stages down to each depth."""
        self.place = np.full((count, 1 + policy.spares, slices), slices, dtype=np.int16)
        self.length = np.zeros((count, 1 + policy.spares), dtype=np.int16)

    def hit(self, rows: Ints, index: Ints) -> None:
        """A slice of each of these shards loses a record."""
        place, chains = self.place[rows], np.arange(len(rows))
        ends = place[chains, :, index]  # K x C
        length = np.minimum(self.length[rows], ends)
        place[place >= length[:, :, None]] = self._slices
        self.place[rows], self.length[rows] = place, length

    def grow(self, rows: Ints) -> Floats:
        """Repair these shards; what it costs each."""
        place, length = self.place[rows], self.length[rows]
        # The longest first; of equal length that with the lesser slices, and chains have different first slices.
        first = np.where(length > 0, place.argmin(axis=2), self._slices)
        order = np.argsort(-length.astype(np.int64) * (self._slices + 1) + first, axis=1, kind="stable")
        place = np.take_along_axis(place, order[:, :, None], axis=1)
        length = np.take_along_axis(length, order, axis=1)
        before = self._spent[length].sum(axis=1)
        likely = self._likely[rows % len(self._likely)]
        self._extend(place, length, likely, 0, self._policy.depth)
        for chain in range(1, 1 + self._policy.spares):
            self._extend(place, length, likely, chain, self._policy.spare_depth)
        self.place[rows], self.length[rows] = place, length
        return np.asarray(self._spent[length].sum(axis=1) - before)

    def _extend(
        self, place: NDArray[np.int16], length: NDArray[np.int16], likely: Ints, chain: int, depth: int
    ) -> None:
        short = np.flatnonzero(length[:, chain] < depth)
        if not len(short):
            return
        nearest, slices = self._nearest(place[short], chain), self._slices
        own, begun = place[short, chain], length[short, chain]
        # The least likely first; of these the deepest elsewhere, then the least; those that the chain has come last.
        rank = likely[short] * (slices + 1) + slices - nearest
        rank[own < slices] = slices * (slices + 1)
        order = np.argsort(rank, axis=1, kind="stable")
        if (begun < self._kept).any():  # up to there by what lies deep enough elsewhere
            fits = np.take_along_axis((nearest >= self._kept) & (own == slices), order, axis=1)
            later = ~fits | (np.cumsum(fits, axis=1) > self._kept - begun[:, None])
            order = np.take_along_axis(order, np.argsort(later, axis=1, kind="stable"), axis=1)
        places = begun[:, None] + np.arange(slices, dtype=np.int16)
        new = np.where(places < depth, places, slices).astype(np.int16)
        added = np.full_like(own, slices)
        np.put_along_axis(added, order, new, axis=1)
        place[short, chain] = np.minimum(own, added)
        length[short, chain] = depth

    def _nearest(self, place: NDArray[np.int16], chain: int) -> NDArray[np.int16]:
        """K x L: how near a slice is to the top of any other chain; L where no other has it."""
        others = np.delete(place, chain, axis=1)
        if not others.shape[1]:
            return np.full((len(place), self._slices), self._slices, dtype=np.int16)
        return np.asarray(others.min(axis=1))
