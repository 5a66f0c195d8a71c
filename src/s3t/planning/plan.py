"""Plan of a system from expected deletions: shards, slices, and fixed orders or chains that are repaired as needed.

A member that is k slices deep was trained on k / (m L) of all records. During a repair its shard answers worse than was
accepted, or not at all. So the best system is the one with the fewest repairs that the limits allow; of equals the
cheapest. Costs are in full trainings, all records once through all blocks.

*Fixed orders* are repaired where fewer slices than accepted are left. More shards are hit less often each, but have
less depth to lose. More slices and orders lose less, but cost more training. Systems on a grid are compared by one
simulation for each L, B and accepted depth; numbers of repairs have errors of a few percent.

*Chains* are repaired after every deletion, at a cost that is exact. More spares, longer ones and a deeper main chain
each cost more, and to keep k slices after any one deletion takes a spare of k, and no second one where k is at most
L / 2. So for given shards and slices the cheapest chains that serve a level are known. Where stages' times are known,
too, it is simulated how often other deletions come before the repair: then more spares stand by, or none are enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field, computed_field, model_validator

from s3t.core import AsNeeded, FixedOrders, StageCosts
from s3t.orders import Setting, select
from s3t.orders.setting import Floats
from s3t.planning.bounds import cost_of_a_hit, first_failure, least_after_deletion, least_cost, paper_bound
from s3t.planning.simulation import Deletions, Life, Shown, share_dead, simulate_repairs

SHARDS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 25, 32, 40, 50, 64, 80, 100)
SLICES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)
BUDGETS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
DAYS_A_MONTH = 365.25 / 12
_SHARE = 0.1
_MOST_DEAD = 0.0001
"""Share of the time in which a shard may be dead that is asked never to be."""
_TRIALS, _MOMENTS = 400, 24
_MOST_DELETIONS = 1_000_000_000

Positive = Annotated[float, Field(gt=0, le=1e9)]


class Demand(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """Deletions that come, what a system shall serve with meanwhile, and what it may cost."""

    deletions_per_month: Positive
    """Requests that each hit one slice once: for a record, or for a person, whose records all lie in one slice."""
    months: Positive = 12
    shards: int | None = Field(default=None, ge=1, le=100_000)
    """m; None: one of the grid."""
    slices: int | None = Field(default=None, ge=1, le=256)
    """L; None: one of the grid."""
    share: float | None = Field(default=None, gt=0, le=1)
    """Smallest acceptable depth, as the share of all records that a member has learnt from; of fixed orders 0.1 if
    absent."""
    mean_depth: Positive | None = None
    """Slices that a shard serves with after its repairs, at least. This, or the next, asks for chains."""
    depth_after_deletion: int = Field(default=0, ge=0)
    """Slices that a shard serves with right after any one deletion, at least. 1: none silences a repaired shard."""
    budget: Positive | None = None
    """Largest cost of training and repairs over those months, in full trainings."""
    hours_a_day: Positive | None = None
    """Most hours of repairs a day, in the mean."""
    training_hours: Positive | None = None
    stage_seconds: tuple[Annotated[float, Field(ge=1e-6, le=1e9)], ...] | None = None
    """Measured times of stages of each depth, 1 to L; None: they cost by arithmetic."""
    max_shards: int = Field(default=20, ge=1, le=100)
    max_slices: int = Field(default=12, ge=1, le=32)
    max_sequences: int = Field(default=12, ge=1, le=32)
    layers: int = Field(default=12, ge=1, le=10_000)
    """Layers of the model. Every slice has layers of its own, so L times the layers of a slice are at most as many. An
    undeclared model has as many as BERT's and ViT's base size."""
    layers_per_slice: int | None = Field(default=None, ge=1)
    """None: as many as there is room for, at least one."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Seed of the simulation."""

    @model_validator(mode="after")
    def _fits(self) -> Demand:
        if problems := "\n".join(self._problems()):
            raise ValueError(problems)
        return self

    def _problems(self) -> Iterator[str]:
        if self.deletions_per_month * self.months > _MOST_DELETIONS:
            yield f"more than {_MOST_DELETIONS:,} deletions in all: lower their rate, or the months"
        most = self.layers // (self.layers_per_slice or 1)
        if most == 0:
            yield f"{self.layers_per_slice} layers a slice: the model has {self.layers}"
        elif self.slices is not None and self.slices > most:
            yield f"{self.slices} slices: the model's layers have room for 1 to {most}; see --layers"
        if self.stage_seconds is not None and len(self.stage_seconds) != self.slices:
            yield f"{len(self.stage_seconds)} stage seconds for {self.slices} slices: give one a depth, 1 to L"
        if self.stage_seconds is not None and self.training_hours is not None:
            yield "stage seconds and training hours both say how long training takes; leave one out"
        if self.hours_a_day is not None and self.stage_seconds is None and self.training_hours is None:
            yield "hours a day: how long training takes is not known; give stage seconds or training hours"
        if not self.has_chains and self.budget is None and self.hours_a_day is None:
            yield "give --budget or --hours-a-day, or a level of service: --mean-depth or --depth-after-deletion"
        if self.shards is not None and self._share * self.shards > 1:
            yield f"share {self._share:g}: each of {self.shards} shards has {1 / self.shards:.3g} of all records"
        if not self.has_chains:
            return
        if self.shards is None or self.slices is None:
            yield "a level of service is planned for given shards and slices: give --shards and --slices"
        elif self.mean_depth is not None and self.mean_depth > self.slices:
            yield f"mean depth {self.mean_depth:g}: a shard has {self.slices} slices; ask for at most {self.slices}"
        elif self.depth_after_deletion > self.slices // 2:
            yield (
                f"depth {self.depth_after_deletion} after a deletion: a main chain and a spare of {self.slices} slices "
                f"keep {self.slices // 2} after any one deletion; ask for at most that, or take "
                f"{2 * self.depth_after_deletion} slices"
            )

    @property
    def has_chains(self) -> bool:
        """True if a level of service is asked for, which chains that are repaired as needed meet."""
        return self.mean_depth is not None or self.depth_after_deletion > 0

    @property
    def deletions(self) -> int:
        """Expected deletions over all months."""
        return math.ceil(self.deletions_per_month * self.months)

    def least_depth(self, shards: int, slices: int) -> int:
        """Slices that a shard serves with after its repairs, at least; a dead one is repaired in any case."""
        asked = max(math.ceil(self.mean_depth or 0), self.depth_after_deletion)
        return max(1, asked, math.ceil(self._share * shards * slices - 1e-9))

    @property
    def _share(self) -> float:
        return self.share or (0.0 if self.has_chains else _SHARE)

    def costs(self, slices: int) -> StageCosts:
        """Costs of stages, in a unit of their own."""
        return StageCosts.declared(slices) if self.stage_seconds is None else StageCosts(self.stage_seconds)

    def hours(self, shards: int) -> float | None:
        """Hours of a full training, if they are known."""
        return self.training_hours if self.stage_seconds is None else shards * self.stage_seconds[-1] / 3600

    def allows(self, system: System) -> bool:
        """True if a system stays within the limits of cost and time."""
        return (self.budget is None or system.cost <= self.budget) and (
            self.hours_a_day is None or (system.hours_a_day or 0) <= self.hours_a_day
        )


class System(BaseModel, frozen=True, use_attribute_docstrings=True):
    """A system, and what it is expected to cost and to serve. Costs are in full trainings."""

    shards: int
    slices: int
    budget: int | None
    """Orders a shard; None: it has chains."""
    selector: str | None
    """Name of the algorithm that chose the orders; None for chains."""
    repair: Mapping[str, Any]
    """The recipe's `deletion.repair`."""
    depth: int
    """Slices that a shard serves with after its repairs, at least: those of its main chain, or under which a shard with
    orders is repaired."""
    depth_after_deletion: int
    """Slices that a shard serves with right after any one deletion, at least. 0: it may be silent until it is
    repaired."""
    mean_depth: Shown
    """Slices that serve after repairs, averaged over shards and months."""
    training: Shown
    """Cost of the first training."""
    repairs: Shown
    """Expected repairs of a shard, all shards and months together."""
    repair_cost: Shown
    """Expected cost of all repairs."""
    hours_a_day: Shown | None
    """Hours of repairs a day, in the mean; None where times are not known."""
    share_dead: Shown | None = None
    """Share of the time in which a shard does not answer, since deletions came before one process had repaired it. Of a
    proposal alone, and if `depth_after_deletion` and `stage_seconds` are given."""
    stages: int
    """Artifacts that are stored."""
    deletion_rate: Shown
    """Deletions until every shard would be dead without repair (paper, Lemma 1)."""
    first_failure: Shown
    """Deletions until the first shard would be."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cost(self) -> Shown:
        """Training and repairs."""
        return self.training + self.repair_cost

    @computed_field  # type: ignore[prop-decorator]
    @property
    def data_share(self) -> Shown:
        """Share of all records that a member has learnt from, in the mean."""
        return self.mean_depth / (self.shards * self.slices)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def cost_of_a_repair(self) -> Shown:
        """Mean cost of a repair; 0 where none is expected."""
        return self.repair_cost / self.repairs if self.repairs else 0.0


class Plan(BaseModel, frozen=True, use_attribute_docstrings=True):
    """The answer of `s3t plan`: a proposed system, and its alternatives."""

    demand: Demand
    deletions: int
    """Expected deletions over all months."""
    proposal: System | None
    """The system within the limits with the fewest repairs, of equals the cheapest; None if no system is, or, where
    stages' times are known, if repairs by one process keep none alive."""
    cheapest: System
    """The one that serves what is asked for at least cost."""
    frontier: tuple[System, ...]
    """Systems by cost: of orders those than which none is both cheaper and repaired less, of chains one a depth."""
    bound: Shown | None
    """Least cost of repairs at the proposal's mean depth, whatever is trained and dead shards allowed."""
    recipe: Mapping[str, Mapping[str, Any]]
    """Fields of the proposal's recipe."""


def plan(demand: Demand) -> Plan:
    """Propose a system. A proposal of fixed orders has those of `survival` if they are better than spaced rotations."""
    systems = list(_with_chains(demand) if demand.has_chains else _with_orders(demand))
    systems.sort(key=lambda system: (system.cost, system.repairs))
    frontier: list[System] = []
    for system in systems:
        if not frontier or (-system.repairs, system.depth) > (-frontier[-1].repairs, frontier[-1].depth):
            frontier.append(system)
    serving = [system for system in systems if system.depth >= demand.least_depth(system.shards, system.slices)]
    allowed = sorted(filter(demand.allows, serving), key=lambda system: (system.repairs, system.cost))
    best = next(_alive(demand, allowed), None)
    bound, recipe = None, dict[str, Mapping[str, Any]]()
    if best is not None:
        if best.budget is not None:
            (again,) = _judged(demand, best.slices, best.budget, "survival", [best.shards])
            best = again if demand.allows(again) and again.repairs <= best.repairs else best
        costs = demand.costs(best.slices).in_trainings(best.shards)
        bound = demand.deletions * least_cost(costs, best.mean_depth)
        recipe = {
            "partition": {"shards": best.shards, "slices": best.slices},
            "sequences": {"budget": best.budget, "selector": best.selector},
            "adapter": {"layers_per_slice": demand.layers_per_slice or demand.layers // best.slices},
            "deletion": {"repair": best.repair},
        }
        if best.budget is None:
            del recipe["sequences"]
    return Plan(
        demand=demand,
        deletions=demand.deletions,
        proposal=best,
        cheapest=serving[0],
        frontier=tuple(frontier),
        bound=bound,
        recipe=recipe,
    )


def _alive(demand: Demand, systems: Iterable[System]) -> Iterator[System]:
    """Where stages' times are known, the systems whose repairs by one process keep pace: no shard is dead for more than
    about a ten-thousandth of the time."""
    if demand.stage_seconds is None or not demand.depth_after_deletion:
        yield from systems
        return
    between = demand.months * DAYS_A_MONTH * 86_400 / demand.deletions
    for system in (each for each in systems if (each.hours_a_day or 0) <= 24):
        policy = AsNeeded(**{name: value for name, value in system.repair.items() if name != "policy"})
        share = share_dead(
            policy,
            demand.costs(system.slices),
            shards=system.shards,
            between=between,
            most=_MOST_DEAD,
            seed=demand.seed,
        )
        if share is not None:
            yield system.model_copy(update={"share_dead": share})


def _with_chains(demand: Demand) -> Iterator[System]:
    """The cheapest chains of each depth that keep what is asked for after a deletion."""
    shards, slices, after = demand.shards or 1, demand.slices or 1, demand.depth_after_deletion
    costs = demand.costs(slices).in_trainings(shards)
    most = 1 if not after or demand.stage_seconds is None else slices // after - 1
    shapes = [(depth, 1) for depth in range(max(after, 1), slices + 1)]
    least = demand.least_depth(shards, slices)  # a deeper main chain hardly changes who is dead
    for depth, spares in [*shapes, *((least, spares) for spares in range(2, most + 1))]:
        policy = AsNeeded.keeping(mean_depth=depth, after_deletion=after, spares=spares)
        stages = [*range(1, depth + 1), *list(range(1, policy.spare_depth + 1)) * policy.spares]
        yield _system(
            demand,
            shards,
            slices,
            budget=None,
            selector=None,
            repair={"policy": "as-needed", **vars(policy)},
            depth=depth,
            depth_after_deletion=policy.least_after_hit(slices),
            mean_depth=depth,
            training=shards * math.fsum(costs.by_depth[stage - 1] for stage in stages),
            repairs=demand.deletions,
            repair_cost=demand.deletions * cost_of_a_hit(policy, costs),
            stages=shards * len(stages),
            tops=1 + policy.spares,
        )


def _with_orders(demand: Demand) -> Iterator[System]:
    most = min(demand.max_slices, demand.layers // (demand.layers_per_slice or 1))
    shards = [count for count in SHARDS if count <= demand.max_shards] if demand.shards is None else [demand.shards]
    for slices in [count for count in SLICES if count <= most] if demand.slices is None else [demand.slices]:
        for budget in BUDGETS:
            if budget <= min(slices, demand.max_sequences):
                yield from _judged(demand, slices, budget, "cyclic", shards)


def _judged(demand: Demand, slices: int, budget: int, selector: str, shards: list[int]) -> Iterator[System]:
    """The system for each number of shards with which a full depth is enough.

    Shards are alike and hit at random, so one of them is simulated, and the deletions that it gets of all are binomial.
    """
    orders = select(selector, Setting(slices=slices, budget=budget))
    stages = len({order[:depth] for order in orders for depth in range(1, slices + 1)})
    moments = np.unique(np.linspace(1, demand.deletions, _MOMENTS).astype(np.int64)).tolist()
    costs, over = demand.costs(slices).in_trainings(1), min(demand.deletions, 40 * slices + 40)
    lives: dict[int, tuple[Life, int]] = {}
    for count in shards:
        accepted = demand.least_depth(count, slices)
        if accepted > slices:
            continue
        if accepted not in lives:
            life = simulate_repairs(
                FixedOrders([orders]),
                Deletions.uniform(1, slices),
                costs=costs,
                over=over,
                below=accepted,
                trials=_TRIALS,
                seed=demand.seed,
            )
            lives[accepted] = life, least_after_deletion(orders, accepted)
        life, least = lives[accepted]
        depth_after = life.depth_counts @ np.arange(slices + 1) / _TRIALS
        depths = [expected_after(depth_after, when, count, grows=False) for when in moments]
        yield _system(
            demand,
            count,
            slices,
            budget=budget,
            selector=selector,
            repair={"below-depth": accepted},
            depth=accepted,
            depth_after_deletion=least,
            mean_depth=float(np.mean(depths)),
            # A shard's full training is 1/m of all; and there are m of them.
            training=life.training_cost,
            repairs=count * expected_after(life.repairs_after, demand.deletions, count),
            repair_cost=expected_after(life.cost_after, demand.deletions, count),
            stages=count * stages,
            tops=len({order[0] for order in orders}),
        )


def _system(demand: Demand, shards: int, slices: int, *, repair_cost: float, tops: int, **others: Any) -> System:
    hours = demand.hours(shards)
    return System(
        shards=shards,
        slices=slices,
        repair_cost=repair_cost,
        hours_a_day=None if hours is None else repair_cost * hours / (demand.months * DAYS_A_MONTH),
        deletion_rate=paper_bound(shards, slices, tops),
        first_failure=first_failure(shards, slices, tops),
        **others,
    )


def expected_after(after: Floats, deletions: int, shards: int, *, grows: bool = True) -> float:
    """Expected value of a shard's quantity after `deletions` deletions in the system, which hit m shards at random.

    `after`, R + 1, is the quantity after r deletions in the shard. If it `grows`, then beyond R, too, as over the
    second half of R; else it stays.
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
