"""Levels of service, and the cheapest repair as needed that meets one. No simulation: costs are exact for uniform hits.

A level is what a shard has to serve, and what that may cost. More spares, longer ones and a deeper main chain each cost
more, and to keep k slices after any one deletion takes a spare of k, and no second one where k is at most L / 2. So the
cheapest policy has the least depth of the main chain that serves enough, at most one spare, and the least depth of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from s3t.errors import PlanningError
from s3t.forests import AsNeeded, StageCosts
from s3t.planning.forests import cost_of_a_hit


def least_cost(costs: StageCosts, mean_depth: float, *, chances: Sequence[float] | None = None) -> float:
    """Least cost of repairs for each hit of a shard, whatever is trained, at a mean depth.

    A stage of depth k lives until one of its k slices is hit: for 1 / q hits in the mean, where q is at least the sum
    of the k least chances. By Little's law, where a share p of the time some stage of depth k is alive, at least p q
    of them are trained for each hit. A mean depth is reached at least cost by serving one or two depths.

    One chain that is grown again after every hit reaches the bound, and is dead after each hit of its first slice.

    >>> least_cost(StageCosts((1.0, 1.0, 1.0, 1.0)), 2)  # depth 1: a quarter; depth 2: two quarters
    0.75

    Args:
        mean_depth: slices that serve, 0 to L.
        chances: of each slice to be the next that is hit, L, adding up to 1; None: all are alike.
    """
    slices = costs.slices
    if not 0 <= mean_depth <= slices:
        raise PlanningError("the mean depth", f"{mean_depth}: a shard has 0 to {slices} slices")
    each = np.full(slices, 1 / slices) if chances is None else np.sort(np.asarray(chances, dtype=np.float64))
    if len(each) != slices:
        raise PlanningError("the chances", f"{len(each)} of them for {slices} slices")
    always = np.concatenate([[0.0], np.cumsum(np.cumsum(each) * costs.by_depth)])
    """Cost of serving each depth all the time."""
    pairs = [(low, high) for low in range(slices + 1) for high in range(low, slices + 1) if low <= mean_depth <= high]
    return float(min(_between(always, low, high, mean_depth) for low, high in pairs))


def _between(always: np.ndarray, low: int, high: int, depth: float) -> float:
    share = (depth - low) / (high - low) if high > low else 0.0
    return float((1 - share) * always[low] + share * always[high])


DAYS_A_MONTH = 365.25 / 12
_MOST_SHARDS, _MOST_SLICES, _MOST_DELETIONS = 100_000, 256, 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Level:
    """A level of service. Every field is a demand of its own."""

    mean_depth: float = 1
    """Slices that a shard serves with after its repairs, in the mean, at least; above 0."""
    after_deletion: int = 0
    """Slices that a shard serves with right after any one deletion, at least, if it was repaired before. 1: no shard is
    ever dead."""
    hours_a_day: float | None = None
    """Hours of repairs a day, in the mean, at most."""
    trainings: float | None = None
    """Cost of the first training and all repairs, at most, in full trainings."""

    def problems(self, system: System) -> list[str]:
        """Demands that no repair as needed can meet with these shards, at any cost."""
        slices, problems = system.slices, []
        if not (math.isfinite(self.mean_depth) and self.mean_depth > 0):
            problems.append(f"mean depth {self.mean_depth}: give a number above 0")
        elif self.mean_depth > slices:
            problems.append(f"mean depth {self.mean_depth:g}: a shard has {slices} slices; ask for at most {slices}")
        if self.after_deletion < 0:
            problems.append(f"depth {self.after_deletion} after a deletion: give a number from 0")
        elif self.after_deletion > slices // 2:
            problems.append(
                f"depth {self.after_deletion} after a deletion: a main chain and a spare of {slices} slices keep "
                f"{slices // 2} after any one deletion; ask for at most that, or take {2 * self.after_deletion} slices"
            )
        limits = {"hours a day": self.hours_a_day, "full trainings": self.trainings}
        problems += [
            f"{limit} {what}: give a number above 0"
            for what, limit in limits.items()
            if limit is not None and not (math.isfinite(limit) and limit > 0)
        ]
        if self.hours_a_day is not None and system.hours is None:
            problems.append("hours a day: how long stages take is not known; give it")
        return problems


@dataclass(frozen=True, kw_only=True)
class System:
    """Shards, what their stages cost, and the deletions that come, on all slices alike.

    A full training passes the records of all shards through all blocks: as the m deepest stages do.
    """

    shards: int
    """m."""
    costs: StageCosts
    """By depth, of L depths, in any unit."""
    hours: float | None = None
    """Hours of a full training, if they are known."""
    deletions_per_month: float
    """Requests that each hit one slice once."""
    months: float
    """Months to plan for."""

    def __post_init__(self) -> None:
        numbers = {"deletions per month": self.deletions_per_month, "months": self.months, "hours": self.hours}
        problems = [
            f"{name} is {value}, not a finite number above 0"
            for name, value in numbers.items()
            if value is not None and not (math.isfinite(value) and value > 0)
        ]
        if not 1 <= self.shards <= _MOST_SHARDS:
            problems.append(f"{self.shards} shards: give 1 to {_MOST_SHARDS:,}")
        if self.slices > _MOST_SLICES:
            problems.append(f"{self.slices} slices: give at most {_MOST_SLICES:,}")
        if not problems and self.deletions_per_month * self.months > _MOST_DELETIONS:
            problems.append(f"more than {_MOST_DELETIONS:,} deletions in all: lower their rate, or the months")
        if problems:
            raise PlanningError("the system to plan", problems)

    @property
    def slices(self) -> int:
        """L."""
        return self.costs.slices

    @property
    def deletions(self) -> int:
        """Expected deletions over all months."""
        return math.ceil(self.deletions_per_month * self.months)

    @property
    def full(self) -> float:
        """Cost of a full training, in the unit of the stages'."""
        return self.shards * self.costs.by_depth[-1]

    def hours_a_day(self, trainings: float) -> float | None:
        """Hours a day of so many full trainings, spread over all months; None where hours are not known."""
        return None if self.hours is None else trainings * self.hours / (self.months * DAYS_A_MONTH)

    def sisa(self) -> System:
        """The same system, trained as SISA is: every stage passes its slices through all blocks."""
        deepest, slices = self.costs.by_depth[-1], self.slices
        return replace(self, costs=StageCosts(tuple(deepest * depth / slices for depth in range(1, slices + 1))))


@dataclass(frozen=True, kw_only=True)
class Service:
    """Depth that a system serves with, and its costs in full trainings."""

    training: float
    """Cost of the first training."""
    repairs: float
    """Expected cost of all repairs."""
    mean_depth: float
    """Slices that a shard serves with after repairs, in the mean."""
    after_deletion: int
    """Slices that a shard serves with right after any one deletion, at least."""

    @property
    def cost(self) -> float:
        """Cost of the first training and all repairs."""
        return self.training + self.repairs

    def to_json(self) -> dict[str, Any]:
        """The fields and the cost."""
        return dict(vars(self)) | {"cost": self.cost}


def depth_for(score: float, by_depth: Sequence[float]) -> int:
    """Least number of slices that serve with such a score.

    >>> depth_for(0.8, [0.62, 0.75, 0.81, 0.83])
    3

    Args:
        score: at least; higher is better.
        by_depth: measured scores of ensembles of each depth, from 1. On public records: else the depth that is served,
            and so which stages there are, would follow from private ones.
    """
    if not all(map(math.isfinite, (score, *by_depth))):
        raise PlanningError("the level of service", "a score is not finite: give numbers")
    reached = [depth for depth, each in enumerate(by_depth, start=1) if each >= score]
    if not reached:
        best = max(by_depth)
        what = f"no depth reaches a score of {score:g}; the best is {best:g}, with {1 + list(by_depth).index(best)} "
        raise PlanningError("the level of service", f"{what}slices; ask for at most that")
    return reached[0]


def served(policy: AsNeeded, system: System) -> Service:
    """Depth and costs of a system that is repaired by a policy.

    >>> system = System(shards=1, costs=StageCosts((1.0, 2.0, 3.0)), deletions_per_month=12, months=1)
    >>> served(AsNeeded(depth=2), system).repairs  # 2 a hit, and 3 is a full training
    8.0
    """
    by_depth = system.costs.by_depth
    repair = cost_of_a_hit(policy, system.costs)
    stages = math.fsum(by_depth[: policy.depth]) + policy.spares * math.fsum(by_depth[: policy.spare_depth])
    return Service(
        training=system.shards * stages / system.full,
        repairs=system.deletions * repair / system.full,
        mean_depth=policy.depth,
        after_deletion=policy.least_after_hit(system.slices),
    )


def bound(mean_depth: float, system: System) -> float:
    """Least cost of all repairs at a mean depth, in full trainings, whatever is trained (`least_cost`)."""
    return system.deletions * least_cost(system.costs, mean_depth) / system.full


def cheapest(level: Level, system: System) -> AsNeeded:
    """The repair as needed that meets a level at least cost.

    >>> system = System(shards=5, costs=StageCosts((1.3, 3.3, 7.4, 12.8)), deletions_per_month=30, months=12)
    >>> cheapest(Level(mean_depth=2.5, after_deletion=1), system)
    AsNeeded(depth=3, spares=1, spare_depth=1)
    """
    problems = level.problems(system)
    if not problems:
        policy = AsNeeded.keeping(mean_depth=level.mean_depth, after_deletion=level.after_deletion)
        problems = [
            problem for problem in (_hours(level, policy, system), _trainings(level, policy, system)) if problem
        ]
        if not problems:
            return policy
    raise PlanningError("the level of service", problems)


def _hours(level: Level, policy: AsNeeded, system: System) -> str | None:
    def hours(policy: AsNeeded) -> float:
        return system.hours_a_day(served(policy, system).repairs) or 0.0

    if level.hours_a_day is None or hours(policy) <= level.hours_a_day:
        return None
    within = [each for each in _lesser(level, policy) if hours(each) <= level.hours_a_day]
    return _beyond(level, policy, within, f"{level.hours_a_day:g} hours of repairs a day", _up(hours(policy)))


def _trainings(level: Level, policy: AsNeeded, system: System) -> str | None:
    cost = served(policy, system).cost
    if level.trainings is None or cost <= level.trainings:
        return None
    within = [each for each in _lesser(level, policy) if served(each, system).cost <= level.trainings]
    return _beyond(level, policy, within, f"{level.trainings:g} full trainings", _up(cost))


def _lesser(level: Level, policy: AsNeeded) -> list[AsNeeded]:
    """Policies that serve less: first all that keep as much after a deletion, the deepest first, then others."""
    depths, kept = range(math.ceil(level.mean_depth), 0, -1), range(level.after_deletion, -1, -1)
    found = dict.fromkeys(
        AsNeeded.keeping(mean_depth=depth, after_deletion=after) for after in kept for depth in depths
    )
    return [each for each in found if each != policy]


def _beyond(level: Level, policy: AsNeeded, within: list[AsNeeded], limit: str, least: float) -> str:
    asked = f"mean depth {level.mean_depth:g}"
    if level.after_deletion:
        asked += f" and depth {level.after_deletion} after a deletion"
    remedy = f"allow {least:g}"
    if within:
        best = within[0]
        remedy += f", or ask for a mean depth of at most {best.depth}"
        after = min(level.after_deletion, best.spare_depth if best.spares else 0)
        if after < level.after_deletion:
            remedy += f" and for depth {after} after a deletion"
    else:
        remedy += "; nothing that serves costs so little"
    return f"{asked}: {limit} are too few; {remedy}"


def _up(number: float) -> float:
    """Three significant digits, rounded up, so that what is told is enough.

    >>> _up(1.23401), _up(12_301.0), _up(0.5)
    (1.24, 12400.0, 0.5)
    """
    step = 10.0 ** (math.floor(math.log10(number)) - 2)
    return float(f"{math.ceil(number / step) * step:.3g}")
