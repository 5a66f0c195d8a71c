"""The state of a run at one generation, as plain values; and what a deletion does to it, before anything is changed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from s3t.core.growth import Growth, leaves
from s3t.core.places import Order, Place, slices_among
from s3t.core.stages import SliceKind, Stage, head_of, of_slice, readout


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Orders, records and live stages at one generation."""

    generation: int
    growth: Growth
    """Policy of the chains, and of which stage is trained next."""
    records: Mapping[Place, int]
    """Records in each segment."""
    alive: Mapping[Stage, str]
    """Live stages and the keys of their artifacts: none of their slices has lost a record since."""
    of_slices: SliceKind | None = None
    """Kind of the artifact that every slice has of its own, where the method makes one."""
    alone: bool = False
    """True if these artifacts answer without a live model."""
    readouts: Literal["", "each", "mean"] = ""
    """Heads that are solved from readouts, of which each slice leaves one: every serving model's, or that of their
    mean; and the base model's, which answers where no model lives."""
    learned: int = 0
    """The newest segment that is to be learned."""
    scores: Mapping[str, float] | None = None
    """Validation score of each live prefix, by the key of its last stage; None where depth alone chooses."""

    @cached_property
    def orders(self) -> tuple[tuple[Order, ...], ...]:
        """Chains of each shard once it is repaired; how deep each is alive, `depth` says."""
        return tuple(self.growth.chains(shard, alive) for shard, alive in enumerate(self._live_prefixes))

    @cached_property
    def _live_prefixes(self) -> list[list[Order]]:
        """Prefixes of each shard's live stages that trained a model on all that is to be learned."""
        found: list[list[Order]] = [[] for _ in range(self.shards)]
        for stage in self.alive:
            if stage.kind == "model" and stage.seen == self.learned:
                found[stage.shard].append(stage.prefix)
        return found

    @cached_property
    def stale(self) -> Mapping[Stage, str]:
        """Live stages of models that lack what is to be learned since, with their keys. They may serve."""
        return {s: key for s, key in self.alive.items() if s.kind == "model" and s.seen != self.learned}

    @cached_property
    def shards(self) -> int:
        """m, the shards."""
        return 1 + max(place.shard for place in self.records)

    @cached_property
    def slices(self) -> int:
        """L, slices a shard."""
        return 1 + max(place.slice for place in self.records)

    def depth(self, shard: int, order: Order) -> int:
        """Depth, in slices, of the deepest prefix of `order` whose stages are all alive."""
        depth = 0
        while depth < len(order) and Stage(shard, order[: depth + 1], seen=self.learned) in self.alive:
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
        """By shard, the deepest live stage of every order that holds a record; each once, in the orders' order. Of what
        has learned different additions, the deepest answers; the newest of equals.
        """
        found = []
        for shard, orders in enumerate(self.orders):
            prefixes = dict.fromkeys(order[: self.depth(shard, order)] for order in orders)
            by_seen: dict[int, list[Stage]] = {}
            for end in (*(Stage(shard, prefix, seen=self.learned) for prefix in prefixes), *self.stale_ends(shard)):
                if any(self.records[place] for place in end.places):
                    by_seen.setdefault(end.seen, []).append(end)
            depths = {seen: max(end.depth for end in ends) for seen, ends in by_seen.items()}
            deepest = max(depths, key=lambda seen: (depths[seen], seen), default=0)
            found.append(tuple(by_seen.get(deepest, ())))
        return found

    def stale_ends(self, shard: int) -> list[Stage]:
        """The deepest stale stage of every chain of a shard, the newest first."""
        by_seen: dict[int, list[Order]] = {}
        for stage in self.stale:
            if stage.shard == shard:
                by_seen.setdefault(stage.seen, []).append(stage.prefix)
        newest = sorted(by_seen.items(), reverse=True)
        return [Stage(shard, chain, seen=seen) for seen, prefixes in newest for chain in leaves(prefixes)]

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
        readouts = (each for each in alive if each.kind == "readout" and not each.reads)
        return {each.shard for each in readouts if any(self.records[place] for place in each.places)}

    @property
    def trains(self) -> bool:
        """True if stages train models; else heads are all there is."""
        return self.growth.depth > 0

    @property
    def wanted_depth(self) -> int:
        """Slices that a shard serves with once nothing is missing."""
        return self.growth.depth if self.trains else self.slices

    def depths(self) -> tuple[int, ...]:
        """The serving depth of every shard, 0 for one that does not answer; without models, the slices of its head."""
        found = self._members if self.trains else self.heads()
        return tuple(found[shard].depth if shard in found else 0 for shard in range(len(self.orders)))

    def records_in(self, shard: int, prefix: Order) -> int:
        """Records in the slices of a prefix, whether or not they are to be learned."""
        return sum(self.by_slice[shard][index] for index in prefix)

    @cached_property
    def by_slice(self) -> list[list[int]]:
        """Records of each shard's slices."""
        found = [[0] * self.slices for _ in range(self.shards)]
        for place, records in self.records.items():
            found[place.shard][place.slice] += records
        return found

    @property
    def added(self) -> int:
        """The newest segment: the number of additions."""
        return max(place.segment for place in self.records)

    def to_learn(self) -> int:
        """Added records that nothing that serves was made of."""
        if not self.trains:
            learned = {place for head in self.heads().values() for place in head.places}
            return sum(n for place, n in self.records.items() if place.segment and place not in learned)
        seen = {shard: stage.seen for shard, stage in self._members.items()}
        return sum(n for place, n in self.records.items() if place.segment > seen.get(place.shard, 0))

    def missing(self) -> tuple[Stage, ...]:
        """Stages that the run needs and that are not alive, in the order in which they are trained, parents first."""
        models = (stage._replace(seen=self.learned) for stage in self.growth.missing(self._live_prefixes))
        return (*self._missing_of_slices(), *models, *self.missing_readouts())

    def missing_passes(self) -> tuple[Stage, ...]:
        """Missing stages that need one pass through a slice, and no training."""
        return (*self._missing_of_slices(), *self.missing_readouts())

    def _missing_of_slices(self) -> tuple[Stage, ...]:
        return tuple(stage for stage in self._stages_of_slices() if stage not in self.alive)

    def missing_readouts(self) -> tuple[Stage, ...]:
        """Readouts that the heads of the serving models lack. They are made last: a deeper model needs others."""
        return tuple(stage for stage in self.wanted_readouts if stage not in self.alive)

    def unwanted(self) -> Mapping[Stage, str]:
        """Live stages that serve no more, with their keys: stale models, once others have learned what is new; and
        readouts of other models, once those that serve have theirs."""
        if self.stale and not self.growth.missing(self._live_prefixes):
            return self.stale
        if self.missing_readouts():
            return {}
        readouts = {stage: key for stage, key in self.alive.items() if stage.kind == "readout"}
        return {stage: key for stage, key in readouts.items() if stage not in self.wanted_readouts}

    @cached_property
    def _read_to(self) -> Mapping[tuple[Stage, ...], int]:
        """For each head that is solved, by the models that it reads (none: the base model), the newest segment of which
        it is made: as of its models, so while others are trained nothing is made for those that they replace."""
        models = tuple(self._members.values())
        heads = {"": (), "each": (*((model,) for model in models), ()), "mean": (models, ())}[self.readouts]
        newest = max((model.seen for model in models), default=self.learned)
        return {head: max((model.seen for model in head), default=newest) for head in heads}

    @cached_property
    def wanted_readouts(self) -> Collection[Stage]:
        """One for each head and each slice of the run that holds a record; quick to look up, in order."""
        filled = {newest: slices_among(self._filled(newest)) for newest in self._read_to.values()}
        return dict.fromkeys(
            readout(place._replace(segment=newest), models)
            for models, newest in self._read_to.items()
            for place in filled[newest]
        )

    def _filled(self, newest: int) -> Iterator[Place]:
        """Segments up to one that hold a record."""
        return (place for place, records in self.records.items() if place.segment <= newest and records)

    def may_begin(self, stage: Stage) -> bool:
        """True if a missing stage may be trained now: its parents are alive, and it is its turn."""
        if any(parent not in self.alive for parent in stage.parents):
            return False
        if stage.kind == "readout":  # not by `wanted_readouts`: of many shards these are thousands
            (own,) = stage.own
            return self._read_to.get(stage.models) == stage.seen and any(self.records.get(place) for place in own)
        if stage.kind != "model":
            return True
        return stage.seen == self.learned and self.growth.may_begin(stage, self._live_prefixes[stage.shard])

    @property
    def _to_use(self) -> list[Place]:
        """Segments that are learned, or are to be."""
        return sorted(place for place in self.records if place.segment <= self.learned)

    def _stages_of_slices(self) -> tuple[Stage, ...]:
        kind = self.of_slices
        return () if kind is None else tuple(of_slice(place, kind) for place in self._to_use)

    @property
    def training_command(self) -> str:
        """Command that trains the missing stages: `repair` after a deletion, else `train`. Both do the same."""
        return "repair" if self.generation else "train"

    def heads(self) -> dict[int, Stage]:
        """Each shard's head of what is made of its slices: of those that are alive and hold a record."""
        parts: dict[int, list[Place]] = {}
        for stage in self._stages_of_slices():
            (place,) = stage.places
            if stage in self.alive and self.records[place] > 0:
                parts.setdefault(stage.shard, []).append(place)
        return {shard: head_of(places, self.of_slices or "statistics") for shard, places in parts.items()}


def plan_deletion(inventory: Inventory, losses: Mapping[Place, int]) -> tuple[Stage, ...]:
    """The live stages that a deletion takes: those of which a slice loses a record (paper, Algorithm 3)."""
    return tuple(sorted(tainted_by(losses, inventory.alive)))


def tainted_by(places: Collection[Place], stages: Iterable[Stage]) -> Iterator[Stage]:
    """The stages that were made from any of some segments. (`Stage.places` names them all, which with hundreds of
    additions would take seconds.)"""
    whole, first = set(places), dict[tuple[int, int], int]()
    for shard, index, segment in places:
        first[shard, index] = min(segment, first.get((shard, index), segment))

    def saw(shard: int, index: int, seen: int) -> bool:
        return first.get((shard, index), math.inf) <= seen

    for stage in stages:
        if stage.kind == "model":
            hit = any(saw(stage.shard, index, stage.seen) for index in stage.prefix)
        else:
            newest = Place(stage.shard, stage.prefix[0], stage.seen)  # what is alive is of one slice
            own = saw(*newest) if stage.kind == "readout" else newest in whole
            hit = own or any(saw(*place) for place in stage.reads)
        if hit:
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
