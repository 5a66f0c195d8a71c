"""Growth of a shard: a set of chains, and a policy of which stage is trained next.

A chain is the prefix of its deepest live stage; shorter prefixes are alive, too. Which chains there are follows from
the slices that were hit, and when; never from what a record holds.

Of two policies, `FixedOrders` trains given orders to their end. `Forests` repair as needed: after a hit only the stages
are trained that a main chain and a few short spares lack. The main chain serves. A spare begins with another slice, so
it is alive where the main chain has lost its first, and then becomes the main chain. A slice is put where its loss
costs least: the likelier it is to be hit, the deeper; and what is near the top of one chain is deep in the others, or
not in them.

A stage's time follows from how long its records are. So measured costs are for what is shown. Which stages are trained,
and in which order, follows from `StageCosts.declared` alone, or what a repair leaves would tell of deleted records.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, TypeAlias

from pydantic import BaseModel, Field

from s3t.core.places import Order
from s3t.core.stages import Stage, stages_of
from s3t.errors import PlanningError


@dataclass(frozen=True)
class StageCosts:
    """Cost of a stage of each depth, in one unit: seconds, or passes of a record through a layer."""

    by_depth: tuple[float, ...]
    """That of depth k at index k - 1."""

    def __post_init__(self) -> None:
        if not self.by_depth or not all(math.isfinite(cost) and cost > 0 for cost in self.by_depth):
            raise PlanningError(
                "the costs of stages", f"{list(self.by_depth)}: give finite numbers above 0, one a depth"
            )

    @property
    def slices(self) -> int:
        return len(self.by_depth)

    @classmethod
    def declared(cls, slices: int, *, one_block: bool = False) -> StageCosts:
        """Costs of a run's stages from its number of slices and blocks alone, in no particular unit.

        Counted are passes through layers, a pass backward as one forward. A stage of depth k passes k slices forward
        and backward through the k topmost L-ths of the layers: below them the trunk is cached, and filling the cache is
        not counted. With `one_block` every stage trains all layers, as SISA's do.

        >>> StageCosts.declared(3).by_depth, StageCosts.declared(3, one_block=True).by_depth
        ((2, 8, 18), (6, 12, 18))
        """
        return cls(tuple(2 * depth * (slices if one_block else depth) for depth in range(1, slices + 1)))

    def measured(self, seconds: Mapping[int, Sequence[float]]) -> StageCosts | None:
        """Costs in seconds; None if none is measured. Never for a choice of stages (see the module).

        >>> StageCosts((1.0, 4.0, 9.0)).measured({1: [2.0, 2.2, 9.0], 2: [8.0]}).by_depth
        (2.2, 8.0, 18.36)

        `seconds` are measured times by depth. A depth costs their median; one without times costs its present cost
        times the ratio of the medians' sum to their depths' present costs.
        """
        known = {depth: median(times) for depth, times in seconds.items() if times}
        if not known:
            return None
        ratio = math.fsum(known.values()) / math.fsum(self.by_depth[depth - 1] for depth in known)
        return StageCosts(tuple(known.get(depth, ratio * cost) for depth, cost in enumerate(self.by_depth, start=1)))

    def in_trainings(self, shards: int) -> StageCosts:
        """The same in full trainings, each of which costs as much as the deepest stages of all shards."""
        return StageCosts(tuple(cost / (shards * self.by_depth[-1]) for cost in self.by_depth))

    def of(self, prefixes: Iterable[Order]) -> float:
        """Cost of training the stages of some prefixes."""
        return math.fsum(self.by_depth[len(prefix) - 1] for prefix in prefixes)


Chains: TypeAlias = tuple[Order, ...]
"""Chains of which none is the beginning of another, the longest first; of equal length, the lesser slices first."""


def leaves(prefixes: Iterable[Order]) -> Chains:
    """The chains of a forest, from its live prefixes or some of them; empty ones do not count.

    >>> leaves([(0,), (0, 1), (), (2,), (0, 1, 3)])
    ((0, 1, 3), (2,))
    """
    longest: list[Order] = []
    for prefix in sorted(set(prefixes), key=lambda chain: (-len(chain), chain)):
        if prefix and not any(chain[: len(prefix)] == prefix for chain in longest):
            longest.append(prefix)
    return tuple(longest)


def without(chains: Iterable[Order], index: int) -> Chains:
    """The forest once a slice has lost a record: every chain ends above it.

    >>> without([(0, 1, 3), (2, 1)], 1)
    ((0,), (2,))
    """
    return leaves(chain[: chain.index(index)] if index in chain else chain for chain in chains)


def prefixes_of(chains: Iterable[Order]) -> frozenset[Order]:
    """Every live prefix, one a stage."""
    return frozenset(chain[:depth] for chain in chains for depth in range(1, len(chain) + 1))


def depth_of(chains: Chains) -> int:
    """Slices that serve: those of the longest chain."""
    return len(chains[0]) if chains else 0


def depths_after_hit(chains: Chains, slices: int) -> list[int]:
    """Slices that serve once a slice has lost a record, for each of L slices.

    >>> depths_after_hit(((0, 1), (2,)), 3)
    [1, 1, 2]
    """
    depths = [0] * slices
    for chain in chains:
        ends = {index: place for place, index in enumerate(chain)}
        depths = [max(depth, ends.get(index, len(chain))) for index, depth in enumerate(depths)]
    return depths


MOST_SPARES = 100


class AsNeeded(BaseModel, frozen=True):
    """Chains that a shard has after each repair."""

    depth: int = Field(ge=1, le=10_000, strict=True)
    """Slices that serve: those of the main chain."""
    spares: int = Field(default=1, ge=0, le=MOST_SPARES, strict=True)
    """Other chains, each with a first slice of its own. 0: a shard is dead until repaired if its first is hit."""
    spare_depth: int = Field(default=1, ge=1, le=10_000, strict=True)
    """Slices of a spare, at most `depth`."""

    def misfits(self, slices: int) -> Iterator[str]:
        """Numbers that do not fit each other, or shards of L slices."""
        if self.depth > slices:
            yield f"depth {self.depth}: a shard has {slices} slices; give at most {slices}"
        if self.spares >= slices:
            yield (
                f"{self.spares} spares beside the main chain: each begins with a slice of its own, and a shard has "
                f"{slices}; give at most {slices - 1}"
            )
        if self.spare_depth > self.depth:
            yield f"spare_depth {self.spare_depth}: give 1 to {self.depth}, the main chain's depth"

    @classmethod
    def keeping(cls, *, mean_depth: float, after_deletion: int, spares: int = 1) -> AsNeeded:
        """The cheapest chains that serve so many slices, and right after any one hit so many, at most half of all.
        `spares` above 1 stand by for hits that come before the repair is done."""
        return cls(
            depth=max(math.ceil(mean_depth), after_deletion),
            spares=min(after_deletion, 1) * spares,
            spare_depth=max(after_deletion, 1),
        )

    def least_after_hit(self, slices: int) -> int:
        """Slices that serve in a repaired shard of L slices right after a hit of any one of them, at least.

        Exact for one spare, and where `spare_depth` is at most L / (1 + spares); else a lower bound.

        Proof: say that a slice is among the first t of every chain. The last chain that got it had already all slices
        that lie deeper in the others: all but at most t of each. So L - spares t < t, and t is above L / (1 + spares).
        And a hit of the main chain's first slice leaves `spare_depth` at most.
        """
        return min(self.spare_depth, slices // (1 + self.spares)) if self.spares else 0

    def planned(self, alive: Chains, *, slices: int, chances: Sequence[float] | None = None) -> Chains:
        """The chains that a shard has after a repair, the main one first; what else is alive stays alive.

        >>> AsNeeded(depth=3).planned((), slices=4)
        ((0, 1, 2), (3,))
        >>> AsNeeded(depth=3).planned(((3,),), slices=4)  # slice 0 was hit; the spare becomes the main chain
        ((3, 0, 1), (2,))

        `chances` are those of each of L slices to be hit next; None if all are alike.
        """
        likely = (0.0,) * slices if chances is None else chances
        kept = self.least_after_hit(slices)
        chains = list(alive[:1]) or [()]
        for chain in alive[1:]:
            if len(chains) <= self.spares and all(chain[0] != other[0] for other in chains):
                chains.append(chain)
        chains += [()] * (1 + self.spares - len(chains))
        for number, chain in enumerate(chains):
            depth = self.spare_depth if number else self.depth
            beside = chains[:number] + chains[number + 1 :]
            chains[number] = _extended(chain, depth, beside=beside, chances=likely, kept=kept)
        return tuple(chains)


def _extended(chain: Order, depth: int, *, beside: Sequence[Order], chances: Sequence[float], kept: int) -> Order:
    """A chain grown to a depth by the slices that are least likely to be hit; of these by what lies deepest in others.

    Its first `kept` slices lie no higher than that in any other chain, which `least_after_hit` rests on. There are as
    many: the others have at most `kept` such slices each. So a new chain begins with a slice that begins no other.
    """
    place = [len(chances)] * len(chances)  # the highest in any other chain
    for other in beside:
        for number, index in enumerate(other):
            place[index] = min(place[index], number)
    lacking = [index for index in range(len(chances)) if index not in chain]
    lacking.sort(key=lambda index: (chances[index], -place[index]))  # stable: of equals the least first
    first = [index for index in lacking if place[index] >= kept][: max(0, kept - len(chain))]
    rest = [index for index in lacking if index not in first]
    return chain + tuple([*first, *rest][: max(0, depth - len(chain))])


def lacking(alive: Chains, plan: Chains) -> list[Order]:
    """The prefixes whose stages a repair trains, parents before children, the main chain's first.

    >>> lacking(((0, 1), (3,)), ((0, 1, 2), (3,)))
    [(0, 1, 2)]
    """
    there = prefixes_of(alive)
    wanted = [chain[:depth] for chain in plan for depth in range(1, len(chain) + 1)]
    return [prefix for prefix in wanted if prefix not in there]


def may_begin(alive: Chains, plan: Chains, prefix: Order) -> bool:
    """True if a missing stage of a forest with such a plan may be trained now: its parent is alive, and it is its turn.

    So what is planned next does not depend on how far a repair has come, in whatever order its stages end.
    """
    there, main = prefixes_of(alive) | {()}, plan[0]
    if prefix[:-1] not in there:
        return False
    if prefix == main[: len(prefix)]:
        return True
    # Spares grow one after another. Beside a main chain that still grows, a single one may, and stays shorter: of
    # several, a new one can begin with a slice that is planned for the main chain.
    beside = depth_of(alive) - 1 if len(plan) == 2 else 0
    most = len(main) if main in there else beside
    growing = next((spare for spare in plan[1:] if spare not in there), ())
    return prefix == growing[: len(prefix)] and len(prefix) <= most


def worth(alive: Chains, prefix: Order, chances: Sequence[float]) -> float:
    """Slices that a stage adds: now, and in the mean after the shard's next hit.

    A main chain's stage adds to both, a spare's to what is left when the main chain is hit.

    >>> worth(((0, 1),), (0, 1, 2), [1 / 3] * 3)
    1.0
    >>> round(worth(((0, 1),), (2,), [1 / 3] * 3), 3)  # slice 0 is the next with a chance of a third
    0.333
    """
    grown, slices = leaves((*alive, prefix)), len(chances)
    after = zip(chances, depths_after_hit(alive, slices), depths_after_hit(grown, slices), strict=True)
    return depth_of(grown) - depth_of(alive) + sum(chance * (new - old) for chance, old, new in after)


@dataclass(frozen=True)
class FixedOrders:
    """The paper's policy: each of a shard's B orders to its end, shallow stages first."""

    orders: Sequence[tuple[Order, ...]]
    """Orders of each shard, of L slices."""
    spares: ClassVar[None] = None
    """Chains that stand by for a shard's first; None if all its chains are alike."""

    @property
    def depth(self) -> int:
        """Slices that a shard serves with after its repairs."""
        return len(self.orders[0][0])

    def chains(self, shard: int, alive: Iterable[Order]) -> tuple[Order, ...]:
        """A shard's chains after a repair, from its live prefixes."""
        return self.orders[shard]

    def missing(self, alive: Sequence[Collection[Order]]) -> list[Stage]:
        """Stages that a repair trains, the first one first, from each shard's live prefixes."""
        there = [set(prefixes) for prefixes in alive]
        return [stage for stage in stages_of(self.orders) if stage.prefix not in there[stage.shard]]

    def may_begin(self, stage: Stage, alive: Iterable[Order]) -> bool:
        """True if a missing stage, whose parent is alive, may be trained now beside its shard's live prefixes."""
        return True


@dataclass(frozen=True, kw_only=True)
class Forests:
    """Repair as needed: the main chain and spares of `policy`, the stage that is worth most for its cost first."""

    policy: AsNeeded
    costs: StageCosts
    """By depth, of L depths; declared ones. Measured times would make the choice follow the records' lengths."""
    chances: tuple[tuple[float, ...], ...]
    """For each of m shards, the chance of each slice to be the shard's next that is hit; a row adds up to 1."""

    @property
    def depth(self) -> int:
        return self.policy.depth

    @property
    def spares(self) -> int:
        return self.policy.spares

    def chains(self, shard: int, alive: Iterable[Order]) -> Chains:
        """The main chain first, then spares; behind them others that are alive."""
        there = leaves(alive)
        planned = self._planned(shard, there)
        others = (chain for chain in there if not any(chain == plan[: len(chain)] for plan in planned))
        return (*planned, *others)

    def _planned(self, shard: int, there: Chains) -> Chains:
        return self.policy.planned(there, slices=self.costs.slices, chances=self.chances[shard])

    def missing(self, alive: Sequence[Collection[Order]]) -> list[Stage]:
        """Stages that a repair trains, the most worth for its cost first, each after its parent."""
        grown = [leaves(prefixes) for prefixes in alive]
        plans = [self._planned(shard, there) for shard, there in enumerate(grown)]
        left = [lacking(there, plan) for there, plan in zip(grown, plans, strict=True)]

        found = []
        best = {shard: self._best(shard, grown[shard], plans[shard], some) for shard, some in enumerate(left) if some}
        while best:
            shard = max(best, key=lambda number: (best[number][0], -number))
            _, prefix = best.pop(shard)
            found.append(Stage(shard, prefix))
            left[shard].remove(prefix)
            grown[shard] = leaves((*grown[shard], prefix))
            if left[shard]:
                best[shard] = self._best(shard, grown[shard], plans[shard], left[shard])
        return found

    def next(self, shard: int, alive: Iterable[Order]) -> tuple[float, Order] | None:
        """The stage that a shard's repair begins with, and its worth for its cost; None if nothing is missing."""
        there = leaves(alive)
        plan = self._planned(shard, there)
        return self._best(shard, there, plan, left) if (left := lacking(there, plan)) else None

    def _best(self, shard: int, there: Chains, plan: Chains, left: Iterable[Order]) -> tuple[float, Order]:
        ready = [each for each in left if may_begin(there, plan, each)]
        rated = [(worth(there, each, self.chances[shard]) / self.costs.of([each]), each) for each in ready]
        return max(rated, key=lambda one: one[0])  # of equals the first, as planned

    def may_begin(self, stage: Stage, alive: Iterable[Order]) -> bool:
        """A forest grows in its order: so whichever stages end first, the chains are the same."""
        there = leaves(alive)
        return may_begin(there, self._planned(stage.shard, there), stage.prefix)


Growth: TypeAlias = FixedOrders | Forests
"""A run's policy of which stage is trained next: chains that each shard has after its repairs, and their order. It
decides by declared numbers and live stages alone, never by what records hold."""
