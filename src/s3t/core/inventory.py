"""The state of a run at one generation, as plain values; and what a deletion does to it, before anything is changed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from s3t.core.growth import Growth
from s3t.core.places import Order, Place
from s3t.core.stages import Kind, SliceKind, Stage, readout, stages_of_slices


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Orders, records and live stages at one generation."""

    generation: int
    growth: Growth
    """Policy of the chains, and of which stage is trained next."""
    records: Mapping[Place, int]
    """Records in each slice."""
    alive: Mapping[Stage, str]
    """Live stages and the keys of their artifacts: none of their slices has lost a record since."""
    of_slices: SliceKind | None = None
    """Kind of the artifact that every slice has of its own, where the method makes one."""
    alone: bool = False
    """True if these artifacts answer without a live model."""
    readouts: Literal["", "each", "mean"] = ""
    """Heads that are solved from readouts, of which each slice leaves one: every serving model's, or that of their
    mean; and the base model's, which answers where no model lives."""
    scores: Mapping[str, float] | None = None
    """Validation score of each live prefix, by the key of its last stage; None where depth alone chooses."""

    @cached_property
    def orders(self) -> tuple[tuple[Order, ...], ...]:
        """Chains of each shard once it is repaired; how deep each is alive, `depth` says."""
        return tuple(self.growth.chains(shard, alive) for shard, alive in enumerate(self._live_prefixes))

    @cached_property
    def _live_prefixes(self) -> list[list[Order]]:
        """Prefixes of each shard's live stages that trained a model."""
        found: list[list[Order]] = [[] for _ in range(1 + max(place.shard for place in self.records))]
        for stage in self.alive:
            if stage.kind == "model":
                found[stage.shard].append(stage.prefix)
        return found

    @property
    def slices(self) -> int:
        """L, slices a shard."""
        return 1 + max(place.slice for place in self.records)

    def depth(self, shard: int, order: Order) -> int:
        """Depth, in slices, of the deepest prefix of `order` whose stages are all alive."""
        depth = 0
        while depth < len(order) and Stage(shard, order[: depth + 1]) in self.alive:
            depth += 1
        return depth

    def serving(self, shard: int) -> Stage | None:
        """The deepest live stage whose prefix holds a record, the first of equals; None if there is none.

        Which slices were hit decides, never what their records contain. With scores, of the deepest live stage of every
        order the one with the best.
        """

        def worth(stage: Stage) -> tuple[float, int]:
            scores = self.scores or {}
            return scores.get(self.alive[stage], -math.inf), stage.depth

        return max(self.serving_all[shard], key=worth, default=None)

    @cached_property
    def serving_all(self) -> list[tuple[Stage, ...]]:
        """By shard, the deepest live stage of every order that holds a record; each once, in the orders' order."""
        found = []
        for shard, orders in enumerate(self.orders):
            prefixes = dict.fromkeys(order[: self.depth(shard, order)] for order in orders)
            found.append(tuple(Stage(shard, prefix) for prefix in prefixes if self.records_in(shard, prefix) > 0))
        return found

    def members(self) -> dict[int, Stage]:
        """The ensemble: the stage with which each shard answers that can."""
        return dict(self._members)

    @cached_property
    def _members(self) -> dict[int, Stage]:
        each = map(self.serving, range(len(self.orders)))
        return {stage.shard: stage for stage in each if stage is not None}

    def answering(self) -> set[int]:
        """Shards that answer: with their model, or, where it may alone, with what is made of their slices."""
        return {*self._members, *(self.heads() if self.alone else ())} or self.answering_by_base()

    def answering_by_base(self) -> set[int]:
        """Where no model lives: shards whose slices have part in the base model's head."""
        alive = () if self._members else self.alive
        return {
            each.shard for each in alive if each.kind == "readout" and not each.reads and self.records[each.places[0]]
        }

    @property
    def trains(self) -> bool:
        """True if stages train models; else heads are all there is."""
        return self.growth.depth > 0

    @property
    def kind(self) -> Kind:
        """Kind of the stages that serve first."""
        return "model" if self.trains or self.of_slices is None else self.of_slices

    @property
    def wanted_depth(self) -> int:
        """Slices that a shard serves with once nothing is missing."""
        return self.growth.depth if self.trains else self.slices

    def depths(self) -> tuple[int, ...]:
        """The serving depth of every shard, 0 for one that does not answer; without models, the slices of its head."""
        found = self._members if self.trains else self.heads()
        return tuple(found[shard].depth if shard in found else 0 for shard in range(len(self.orders)))

    def records_in(self, shard: int, prefix: Order) -> int:
        """Records in the slices of a prefix."""
        return sum(self.records[Place(shard, index)] for index in prefix)

    def missing(self) -> tuple[Stage, ...]:
        """Stages that the run needs and that are not alive, in the order in which they are trained, parents first."""
        of_slices = self._missing_of_slices()
        return (*of_slices, *self.growth.missing(self._live_prefixes), *self.missing_readouts())

    def missing_passes(self) -> tuple[Stage, ...]:
        """Missing stages that need one pass through a slice, and no training."""
        return (*self._missing_of_slices(), *self.missing_readouts())

    def _missing_of_slices(self) -> tuple[Stage, ...]:
        return tuple(stage for stage in self._stages_of_slices() if stage not in self.alive)

    def missing_readouts(self) -> tuple[Stage, ...]:
        """Readouts that the heads of the serving models lack. They are made last: a deeper model needs others."""
        return tuple(stage for stage in self.wanted_readouts if stage not in self.alive)

    def unwanted_readouts(self) -> dict[Stage, str]:
        """Live readouts of models that serve no more, with their keys; none before the serving models have theirs."""
        if self.missing_readouts():
            return {}
        readouts = {stage: key for stage, key in self.alive.items() if stage.kind == "readout"}
        return {stage: key for stage, key in readouts.items() if stage not in self.wanted_readouts}

    @cached_property
    def wanted_readouts(self) -> Collection[Stage]:
        """One for each head and each slice of the run that holds a record; quick to look up, in order."""
        models = list(self._members.values())
        groups = {"": [], "each": [*([model] for model in models), []], "mean": [models, []]}[self.readouts]
        filled = [place for place, records in sorted(self.records.items()) if records > 0]
        return dict.fromkeys(readout(place, group) for group in groups for place in filled)

    def may_begin(self, stage: Stage) -> bool:
        """True if a missing stage may be trained now: its parents are alive, and it is its turn."""
        if any(parent not in self.alive for parent in stage.parents):
            return False
        if stage.kind == "readout":
            return stage in self.wanted_readouts
        return stage.kind != "model" or self.growth.may_begin(stage, self._live_prefixes[stage.shard])

    def _stages_of_slices(self) -> tuple[Stage, ...]:
        return () if self.of_slices is None else stages_of_slices(self.of_slices, len(self.orders), self.slices)

    @property
    def training_command(self) -> str:
        """Command that trains the missing stages: `repair` after a deletion, else `train`. Both do the same."""
        return "repair" if self.generation else "train"

    def heads(self) -> dict[int, Stage]:
        """Each shard's head of what is made of its slices: of those that are alive and hold a record."""
        found: dict[int, Stage] = {}
        for stage in self._stages_of_slices():
            if stage in self.alive and self.records_in(stage.shard, stage.prefix) > 0:
                slices = found[stage.shard].prefix if stage.shard in found else ()
                found[stage.shard] = stage._replace(prefix=(*slices, *stage.prefix))
        return found


def plan_deletion(inventory: Inventory, losses: Mapping[Place, int]) -> tuple[Stage, ...]:
    """The live stages that a deletion takes: those of which a slice loses a record (paper, Algorithm 3)."""
    return tuple(sorted(tainted_by(losses, inventory.alive)))


def tainted_by(places: Collection[Place], stages: Iterable[Stage]) -> Iterator[Stage]:
    whole, hit = set(places), {place.shard: set[int]() for place in places}
    for place in places:
        hit[place.shard].add(place.slice)
    for stage in stages:
        seen = stage.shard in hit and not hit[stage.shard].isdisjoint(stage.prefix)
        if seen or not whole.isdisjoint(stage.reads):
            yield stage


def after_deletion(inventory: Inventory, losses: Mapping[Place, int], tainted: Collection[Stage]) -> Inventory:
    """The inventory once slices have lost so many records, and their stages are out of use."""
    gone = set(tainted)
    return replace(
        inventory,
        generation=inventory.generation + (1 if losses else 0),
        records={place: count - losses.get(place, 0) for place, count in inventory.records.items()},
        alive={stage: key for stage, key in inventory.alive.items() if stage not in gone},
    )
