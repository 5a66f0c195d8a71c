"""Repair as needed beside SISA's, beside fixed orders, and beside the bound of any policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from s3t.errors import PlanningError
from s3t.forests import AsNeeded
from s3t.planning.deletions import Deletions
from s3t.planning.repairs import Policy, expected_after, simulate_repairs
from s3t.planning.service import Level, Service, System, bound, cheapest, served
from s3t.progress import SILENT, Steps
from s3t.sequences import Order, Setting, select

BUDGETS = (1, 2, 4, 8)
SELECTOR = "cyclic"
_MOST_BELOW = 12
"""Numbers of slices under which fixed orders are repaired, that are compared."""
_TRIALS, _MOMENTS = 100, 24


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """Fixed orders."""

    budget: int
    """B, orders a shard."""
    below: int
    """Slices under which a shard is repaired."""
    service: Service

    def to_json(self) -> dict[str, Any]:
        """All fields in one."""
        return {"budget": self.budget, "below": self.below} | self.service.to_json()


@dataclass(frozen=True, kw_only=True)
class Depth:
    """A number of slices of a main chain, on the curves of a picture: cost of repairs, in full trainings."""

    depth: int
    """Slices."""
    as_needed: float
    """Cost of our repair as needed."""
    sisa: float
    """Cost of SISA, repaired as needed."""
    bound: float
    """Least cost of any policy whose stages train one block each."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The cheapest policy of a level, and others that meet it."""

    level: Level
    system: System
    policy: AsNeeded
    """Repair as needed that meets the level at least cost."""
    service: Service
    """Its own."""
    sisa: Service
    """SISA's, with the same chains."""
    bound: float
    """Least cost of repairs at that mean depth, in full trainings, whatever is trained."""
    fixed: Fixed | None
    """Fixed orders that serve the level at least cost; None if none of those compared does."""
    all_fixed: tuple[Fixed, ...]
    """All that were compared."""

    def curves(self) -> tuple[Depth, ...]:
        """For each depth, the cheapest chains that keep what the level asks for after a deletion."""
        found = []
        for depth in range(max(1, self.level.after_deletion), self.system.slices + 1):
            policy = AsNeeded.keeping(mean_depth=depth, after_deletion=self.level.after_deletion)
            ours, sisa = (served(policy, each).repairs for each in (self.system, self.system.sisa()))
            found.append(Depth(depth=depth, as_needed=ours, sisa=sisa, bound=bound(depth, self.system)))
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t plan --json` for a level, without the recipe."""

        def timed(document: dict[str, Any]) -> dict[str, Any]:
            return document | {"hours_a_day": self.system.hours_a_day(document["repairs"])}

        ours, fixed = self.service.to_json(), None if self.fixed is None else timed(self.fixed.to_json())
        return {
            "level": dict(vars(self.level)),
            "shards": self.system.shards,
            "slices": self.system.slices,
            "deletions": self.system.deletions,
            "proposal": timed(dict(vars(self.policy)) | ours),
            "sisa": timed(self.sisa.to_json()),
            "fixed": fixed,
            "bound": self.bound,
        }


def compare(level: Level, system: System, *, seed: int = 0, steps: Steps = SILENT) -> Comparison:
    """Propose a policy, and say what else serves as much. `steps` advances `compared_orders` times."""
    policy = cheapest(level, system)
    fixed = []
    for budget, below in compared_orders(system.slices):
        fixed.append(_judged(system, budget, below, seed))
        steps.advance(1)
    meeting = [
        each
        for each in fixed
        if each.service.mean_depth >= level.mean_depth and each.service.after_deletion >= level.after_deletion
    ]
    return Comparison(
        level=level,
        system=system,
        policy=policy,
        service=served(policy, system),
        sisa=served(policy, system.sisa()),
        bound=bound(policy.depth, system),
        fixed=min(meeting, key=lambda each: each.service.cost, default=None),
        all_fixed=tuple(fixed),
    )


def compared_orders(slices: int) -> list[tuple[int, int]]:
    """Orders a shard, and slices under which it is repaired, of the fixed orders that are compared."""
    belows = np.unique(np.linspace(1, slices, min(slices, _MOST_BELOW)).round().astype(int)).tolist()
    return [(budget, below) for budget in BUDGETS if budget <= slices for below in belows]


def least_after_deletion(orders: Sequence[Order], below: int) -> int:
    """Slices that serve right after any one deletion, at least, if shards with fewer than `below` are repaired.

    The worst that is not repaired yet: all slices were hit but the first `below` of one order. A hit of one of these
    leaves what begins other orders without it.

    >>> least_after_deletion([(0, 1, 2), (1, 2, 0)], 3), least_after_deletion([(0, 1, 2), (1, 2, 0)], 1)
    (1, 0)

    Args:
        below: 1 to L.
    """
    if not 1 <= below <= len(orders[0]):
        raise PlanningError("the policy of repair", f"below {below} slices: give 1 to {len(orders[0])}")
    return min(
        max(_alive(order, set(kept[:below]) - {hit}) for order in orders) for kept in orders for hit in kept[:below]
    )


def _alive(order: Order, unhit: set[int]) -> int:
    return next((place for place, index in enumerate(order) if index not in unhit), len(order))


def _judged(system: System, budget: int, below: int, seed: int) -> Fixed:
    """One shard is simulated, as `planning/plan.py` does it."""
    slices, shards, deletions = system.slices, system.shards, system.deletions
    orders = select(SELECTOR, Setting(slices=slices, budget=budget))
    life = simulate_repairs(
        [orders],
        Deletions.uniform(1, slices),
        over=min(deletions, 40 * slices + 40),
        policy=Policy(below=below),
        trials=_TRIALS,
        seed=seed,
        costs=system.costs,
    )
    depth_after = life.depth_counts @ np.arange(slices + 1) / _TRIALS
    moments = np.unique(np.linspace(1, deletions, _MOMENTS).astype(np.int64))
    service = Service(
        training=shards * life.training_cost / system.full,
        repairs=shards * expected_after(life.cost_after, deletions, shards) / system.full,
        mean_depth=float(np.mean([expected_after(depth_after, int(when), shards, grows=False) for when in moments])),
        after_deletion=least_after_deletion(orders, below),
    )
    return Fixed(budget=budget, below=below, service=service)
