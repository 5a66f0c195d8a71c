"""Monte Carlo of whole systems that are repaired: how often, at what cost, and how deep they are meanwhile.

Sequences share the stages of a common prefix. Unless costs of stages are given, cost is counted in slices trained:
stage k of a sequence trains on k slices, and a full training goes once through the m L slices of all shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s3t.errors import PlanningError
from s3t.forests import StageCosts
from s3t.planning.deletions import Deletions
from s3t.planning.simulation import Orders, check_system
from s3t.sequences import Order

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Conditions under which shards are repaired. A repaired shard has its initial depth."""

    below: int = 1
    """A shard is repaired as soon as fewer slices than this are left: 1, when it is dead; 0, never."""
    every: int | None = None
    """Number of deletions in the system after which all shards are repaired, again and again; None: never."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RepairedSimulation:
    """N simulated systems of m shards over R deletions.

    Attributes:
        repairs: N, number of repairs of a shard (a shard that had lost nothing is not counted).
        cost: N, cost of the repairs, in full trainings of all slices, or in the unit of the costs that were given.
        mean_depth: N, depth averaged over shards and over the moments after each deletion (and its repair).
        depth_counts: (R + 1) x (L + 1), number of the N m shards with each depth after r deletions.
        repairs_after: R + 1, the mean number of repairs up to r deletions.
        cost_after: R + 1, their mean cost, in the same unit.
        training_cost: cost of the first training, in the same unit.
    """

    repairs: Ints
    cost: Floats
    mean_depth: Floats
    depth_counts: Ints
    repairs_after: Floats
    cost_after: Floats
    training_cost: float


def training_cost(orders: Orders) -> float:
    """The cost of training all stages, in full trainings: each of the m L slices once.

    >>> training_cost([[(0, 1, 2)]])
    2.0
    """
    slices = sum(len(shard_orders[0]) for shard_orders in orders)
    return sum(float(_nodes(shard_orders, None)[1].sum()) for shard_orders in orders) / slices


def stage_count(orders: Sequence[Order]) -> int:
    """Stages of a shard, those of a common prefix once.

    >>> stage_count([(0, 1, 2), (0, 2, 1)])
    5
    """
    return len(_nodes(orders, None)[1])


def simulate_repairs(
    orders: Orders,
    deletions: Deletions,
    *,
    over: int,
    policy: Policy,
    trials: int = 1_000,
    seed: int = 0,
    costs: StageCosts | None = None,
) -> RepairedSimulation:
    """Simulate systems over a number of deletions, with replacement, under a policy of repair.

    Each of `trials` systems has `over` deletions, R, in all its shards together. `costs` are of stages, by depth; None:
    by the slices that they train on.
    """
    check_system(orders, deletions, trials=trials)
    _check_policy(policy, over, deletions.slices)
    if costs is not None and costs.slices != deletions.slices:
        raise PlanningError("the costs", f"{costs.slices} depths for shards of {deletions.slices} slices")
    system = _System(orders, trials, costs)
    generator = np.random.default_rng(seed)
    steps = np.cumsum(deletions.probabilities.reshape(-1))
    counts = np.zeros((over + 1, deletions.slices + 1), dtype=np.int64)
    counts[0, -1] = trials * deletions.shards
    spent = np.zeros((2, over + 1))
    total = np.zeros(trials)
    for number in range(1, over + 1):
        cells = np.searchsorted(steps, generator.random(trials) * steps[-1], side="right")
        system.hit(*np.divmod(np.minimum(cells, len(steps) - 1), deletions.slices), below=policy.below)
        if policy.every is not None and number % policy.every == 0:
            system.repair_all()
        depths = system.depths()
        counts[number] = np.bincount(depths.reshape(-1), minlength=deletions.slices + 1)
        spent[:, number] = system.repairs.mean(), system.cost.mean()
        total += depths.mean(axis=1)
    full = deletions.shards * deletions.slices if costs is None else 1
    return RepairedSimulation(
        repairs=system.repairs,
        cost=system.cost / full,
        mean_depth=total / max(over, 1),
        depth_counts=counts,
        repairs_after=spent[0],
        cost_after=spent[1] / full,
        training_cost=sum(float(_nodes(chosen, costs)[1].sum()) for chosen in orders) / full,
    )


def expected_after(after: Floats, deletions: int, shards: int, *, grows: bool = True) -> float:
    """Expected value of a shard's quantity after `deletions` deletions in the system, which hit m shards at random.

    Args:
        after: R + 1, the quantity after r deletions in the shard.
        grows: True if it grows beyond R, too, as over the second half of R; False if it stays.
    """
    from scipy.stats import binom

    last = len(after) - 1
    slope = (after[last] - after[last // 2]) / (last - last // 2) if grows and last > 1 else 0.0
    low, high = (int(value) for value in binom.interval(1 - 1e-12, deletions, 1 / shards))
    if low > last:  # all beyond: a straight line, whose mean is its value at the mean
        return float(after[last] + slope * (deletions / shards - last))
    counts = np.arange(low, high + 1)
    chances = binom.pmf(counts, deletions, 1 / shards)
    values = after[np.minimum(counts, last)] + slope * np.maximum(counts - last, 0)
    return float(chances @ values / chances.sum())


class _System:
    """The state of N systems."""

    def __init__(self, orders: Orders, trials: int, costs: StageCosts | None) -> None:
        shards, slices = len(orders), len(orders[0][0])
        self._rows = np.arange(trials)
        self._slices = slices
        # Shards may have different numbers of orders: the first is repeated, which changes nothing.
        budget = max(len(chosen) for chosen in orders)
        padded = [[*chosen, *[chosen[0]] * (budget - len(chosen))] for chosen in orders]
        self._positions = np.argsort(np.asarray(padded), axis=2)  # [shard, order, slice]
        self._nodes = [_nodes(chosen, costs) for chosen in orders]
        self._hit = np.zeros((trials, shards, slices), dtype=bool)
        self._left = np.full((trials, shards, budget), slices, dtype=np.int64)  # depth of each order
        self.repairs = np.zeros(trials, dtype=np.int64)
        self.cost = np.zeros(trials)

    def depths(self) -> Ints:
        """N x m."""
        return np.asarray(self._left.max(axis=2))

    def hit(self, shards: Ints, slices: Ints, *, below: int) -> None:
        """Delete once in every system, and repair where the policy asks for it."""
        self._hit[self._rows, shards, slices] = True
        depth = np.minimum(self._left[self._rows, shards], self._positions[shards, :, slices])
        self._left[self._rows, shards] = depth
        low = np.flatnonzero(depth.max(axis=1) < below)
        for shard in np.unique(shards[low]):
            self._repair(int(shard), low[shards[low] == shard])

    def repair_all(self) -> None:
        """Repair every shard that has lost anything."""
        for shard in range(self._hit.shape[1]):
            self._repair(shard, np.flatnonzero(self._hit[:, shard].any(axis=1)))

    def _repair(self, shard: int, systems: Ints) -> None:
        member, cost = self._nodes[shard]
        missing = self._hit[systems, shard].astype(np.float32) @ member.T > 0
        self.cost[systems] += missing @ cost
        self.repairs[systems] += 1
        self._hit[systems, shard] = False
        self._left[systems, shard] = self._slices


def _nodes(orders: Sequence[Order], costs: StageCosts | None) -> tuple[NDArray[np.float32], Floats]:
    """The stages of a shard: which slices each has seen (S x L), and what it costs (S), without costs in slices."""
    prefixes = sorted({order[:depth] for order in orders for depth in range(1, len(order) + 1)})
    member = np.zeros((len(prefixes), len(orders[0])), dtype=np.float32)
    for row, prefix in enumerate(prefixes):
        member[row, list(prefix)] = 1
    each = [len(prefix) if costs is None else costs.of([prefix]) for prefix in prefixes]
    return member, np.asarray(each, dtype=np.float64)


def _check_policy(policy: Policy, over: int, slices: int) -> None:
    problems = [] if over >= 0 else [f"{over} deletions: give a number from 0"]
    if not 0 <= policy.below <= slices:
        problems.append(f"repair below {policy.below} slices: a shard has 0 to {slices}")
    if policy.every is not None and policy.every < 1:
        problems.append(f"repair after every {policy.every} deletions: give at least 1")
    if problems:
        raise PlanningError("the policy of repair", problems)
