"""Plan of shards, slices and sequences from expected deletions a month and an accepted depth or cost.

A member that is k slices deep was trained on k / (m L) of all records. The accepted depth is the smallest such share. A
shard that has less is repaired at once, and then only what it lacks is trained. During a repair the shard answers worse
than accepted, or not at all. So the best plan is the one with the fewest repairs that the bill allows. More shards are
hit less often each, but have less depth to lose. More slices and sequences lose less, but cost more training.

The cost model: stage k of a sequence trains on k slices, and sequences share the stages of a common prefix. Costs are
in full trainings, once through the slices of all shards. (A stage trains one block alone: counted in records times
layers, as the paper does, it is about an L-th of that.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.errors import PlanningError
from s3t.planning.bound import paper_bound
from s3t.planning.deletions import Deletions
from s3t.planning.repairs import Policy, RepairedSimulation, expected_after, simulate_repairs, stage_count
from s3t.sequences import Order, Setting, select

SHARDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100)
SLICES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
BUDGETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_MAX_SHARDS, _MAX_SLICES, _MAX_DELETIONS = 100, 32, 1_000_000_000
_MAX_BUDGET, _MAX_LAYERS = 1_000_000_000, 10_000
ASSUMED_LAYERS = 12
"""Layers of an undeclared model, such as BERT's and ViT's base size."""
_TRIALS = 400
_MOMENTS = 24

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Demand:
    """Demands on a system."""

    deletions_per_month: float
    """Requests that each hit one slice once: for a record, or for a person, whose records all lie in one slice."""
    months: float
    """Months to plan for."""
    share: float
    """Smallest acceptable depth, as the share of all records that a member has learnt from, above 0 and up to 1."""
    budget: float
    """Largest cost of training and repairs over those months, in full trainings."""
    max_shards: int = 20
    """M, at most; up to 100."""
    max_slices: int = 12
    """L, at most; up to 32."""
    max_sequences: int = 12
    """B, at most; up to L."""
    layers: int = ASSUMED_LAYERS
    """Layers of the model. Every slice has layers of its own, so L times the layers of a slice are at most as many."""
    layers_per_slice: int | None = None
    """Layers that a slice's block trains; None: as many as there is room for, at least one."""

    def __post_init__(self) -> None:
        positive = ("deletions_per_month", "months", "share", "budget")
        problems = [
            f"{name.replace('_', ' ')} is {value}, not a finite number above 0"
            for name in positive
            if not (math.isfinite(value := getattr(self, name)) and value > 0)
        ]
        total = self.deletions_per_month * self.months
        if not problems and total > _MAX_DELETIONS:
            problems.append(f"{total:.3g} deletions in all: at most {_MAX_DELETIONS:,} can be planned")
        if self.share > 1:
            problems.append(f"share is {self.share}, a share of all records: give at most 1")
        limits = (("max_shards", _MAX_SHARDS), ("max_slices", _MAX_SLICES), ("max_sequences", _MAX_SLICES))
        problems += [
            f"{name.replace('_', ' ')} is {getattr(self, name)}, not between 1 and {most}"
            for name, most in limits
            if not 1 <= getattr(self, name) <= most
        ]
        if not problems and self.budget > _MAX_BUDGET:
            problems.append(f"budget is {self.budget:.3g}: at most {_MAX_BUDGET:,} full trainings can be planned")
        if not 1 <= self.layers <= _MAX_LAYERS:
            problems.append(f"layers is {self.layers}, not between 1 and {_MAX_LAYERS:,}")
        if self.layers_per_slice is not None and not 1 <= self.layers_per_slice <= max(1, self.layers):
            problems.append(f"layers per slice is {self.layers_per_slice}, not between 1 and the model's {self.layers}")
        if problems:
            raise PlanningError("the plan asked for", problems)

    @property
    def deletions(self) -> int:
        """Expected deletions over all months."""
        return math.ceil(self.deletions_per_month * self.months)

    @property
    def most_slices(self) -> int:
        """L, at most, of what was asked for and the model has layers for."""
        return min(self.max_slices, self.layers // (self.layers_per_slice or 1))

    def layers_of(self, slices: int) -> int:
        """Layers of each slice where a shard has `slices`."""
        return self.layers_per_slice or self.layers // slices


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A system, and what it is expected to cost and to serve."""

    shards: int
    slices: int
    budget: int
    """Sequences a shard."""
    selector: str
    depth: int
    """Slices under which a shard is repaired."""
    training: float
    """Full trainings for the first training."""
    repairs: float
    """Expected repairs of a shard, all shards and months together."""
    repair_cost: float
    """Cost of the repairs, in full trainings."""
    mean_depth: float
    """Slices that serve, averaged over shards and months."""
    stages: int
    """Artifacts that are stored."""
    deletion_rate: float
    """Deletions until every shard would be dead without repair (paper, Lemma 1)."""
    first_failure: float
    """Deletions until the first shard would be."""

    @property
    def cost(self) -> float:
        """Training and repairs, in full trainings."""
        return self.training + self.repair_cost

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, L and B."""
        return self.shards, self.slices, self.budget

    @property
    def data_share(self) -> float:
        """Share of all records that a member has learnt from, in the mean."""
        return self.mean_depth / (self.shards * self.slices)

    @property
    def cost_of_a_repair(self) -> float:
        """Mean cost of a repair, in full trainings; 0 where none is expected."""
        return self.repair_cost / self.repairs if self.repairs else 0.0

    @property
    def is_silent_below(self) -> bool:
        """True if a shard does not answer from the deletion until its repair ends."""
        return self.depth == 1

    def to_json(self) -> dict[str, Any]:
        """The candidate's fields, its `cost` and `data_share`, and the cost and silence of a repair."""
        return dict(vars(self)) | {
            "cost": self.cost,
            "data_share": self.data_share,
            "cost_of_a_repair": self.cost_of_a_repair,
            "silent_until_repaired": self.is_silent_below,
        }


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A proposed system, and its alternatives."""

    demand: Demand
    proposal: Candidate | None
    """The system within the budget with the fewest repairs; None if no system is."""
    cheapest: Candidate
    """The one that costs least."""
    frontier: tuple[Candidate, ...]
    """Systems than which none is both cheaper and repaired less, by cost."""

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t plan --json`."""
        return {
            "demand": dict(vars(self.demand)) | {"deletions": self.demand.deletions},
            "proposal": None if self.proposal is None else self.proposal.to_json(),
            "layers_per_slice": None if self.proposal is None else self.demand.layers_of(self.proposal.slices),
            "cheapest": self.cheapest.to_json(),
            "frontier": [candidate.to_json() for candidate in self.frontier],
        }


def plan(demand: Demand, *, seed: int = 0) -> Plan:
    """Propose m, L and B.

    All systems on a grid are compared with spaced rotations and uniform deletions, by one simulation for each L, B and
    accepted depth. Numbers of repairs have errors of a few percent. The proposal is judged again with the orders of
    `survival`, and has them if that is better.
    """
    shards = [count for count in SHARDS if count <= demand.max_shards]
    candidates = [
        candidate
        for slices in SLICES
        if slices <= demand.most_slices
        for budget in BUDGETS
        if budget <= min(slices, demand.max_sequences)
        for candidate in _judged(demand, slices, budget, "cyclic", shards, seed)
    ]
    cheapest = min(candidates, key=lambda candidate: (candidate.cost, candidate.repairs))
    affordable = [candidate for candidate in candidates if candidate.cost <= demand.budget]
    best = min(affordable, key=lambda candidate: (candidate.repairs, candidate.cost), default=None)
    if best is not None:
        (again,) = _judged(demand, best.slices, best.budget, "survival", [best.shards], seed)
        if again.cost <= demand.budget and again.repairs <= best.repairs:
            best = again
    return Plan(demand=demand, proposal=best, cheapest=cheapest, frontier=_frontier(candidates))


def _frontier(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    frontier: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda candidate: (candidate.cost, candidate.repairs)):
        if not frontier or candidate.repairs < frontier[-1].repairs:
            frontier.append(candidate)
    return tuple(frontier)


def _judged(
    demand: Demand, slices: int, budget: int, selector: str, shards: Sequence[int], seed: int
) -> list[Candidate]:
    """The system for each number of shards with which a full depth is enough.

    Shards are alike and hit at random, so one of them is simulated, and the deletions that it gets of all are binomial.
    """
    orders = select(selector, Setting(slices=slices, budget=budget))
    over = min(demand.deletions, 40 * slices + 40)
    lives: dict[int, RepairedSimulation] = {}
    candidates = []
    for count in shards:
        accepted = max(1, math.ceil(demand.share * count * slices - 1e-9))  # a dead shard is repaired in any case
        if accepted > slices:
            continue
        if accepted not in lives:
            policy = Policy(below=accepted)
            lives[accepted] = simulate_repairs(
                [orders], Deletions.uniform(1, slices), over=over, policy=policy, trials=_TRIALS, seed=seed
            )
        candidates.append(_candidate(demand, count, orders, selector, accepted, lives[accepted]))
    return candidates


def _candidate(
    demand: Demand, shards: int, orders: tuple[Order, ...], selector: str, accepted: int, life: RepairedSimulation
) -> Candidate:
    slices = len(orders[0])
    depth_after = life.depth_counts @ np.arange(slices + 1) / _TRIALS
    moments = np.unique(np.linspace(1, demand.deletions, _MOMENTS).astype(np.int64))
    tops = len({order[0] for order in orders})
    return Candidate(
        shards=shards,
        slices=slices,
        budget=len(orders),
        selector=selector,
        depth=accepted,
        training=life.training_cost,
        repairs=shards * expected_after(life.repairs_after, demand.deletions, shards),
        # A shard's full training is 1/m of all; and there are m of them.
        repair_cost=expected_after(life.cost_after, demand.deletions, shards),
        mean_depth=float(
            np.mean([expected_after(depth_after, int(moment), shards, grows=False) for moment in moments])
        ),
        stages=shards * stage_count(orders),
        deletion_rate=paper_bound(shards, slices, tops),
        first_failure=_first_failure(shards, slices, tops),
    )


def _first_failure(shards: int, slices: int, tops: int) -> float:
    """Expected deletions, uniform, until some shard has lost all its top slices.

    If deletions come at rate 1, slices are hit independently: the chance that no shard has is (1 - x^tops)^shards,
    with x the chance that one slice is.
    """
    from scipy.integrate import quad

    powers = np.arange(tops)
    value, _ = quad(lambda x: (1 - x**tops) ** (shards - 1) * (x**powers).sum(), 0, 1)
    return float(shards * slices * value)
