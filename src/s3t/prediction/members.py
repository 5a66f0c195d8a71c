"""Members that answer: the deepest stage of every member's prefix. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from s3t.core import Inventory, Kind, Order, Stage, by_kind
from s3t.errors import InputError, NoLiveShardError
from s3t.recipe import Prediction


class Member(NamedTuple):
    """A prefix that answered, or prototypes."""

    shard: int
    prefix: Order
    """Its slices, in the order of training; or those whose prototypes there are."""
    key: str
    """Key of its deepest stage's artifact; for prototypes the keys of all slices, separated by commas."""
    kind: Kind = "model"


Prefixes: TypeAlias = "Mapping[int, Order] | Sequence[Member | tuple[int, Order]]"
"""Prefixes that shall answer: one for each shard, or (shard, prefix) pairs, perhaps several of a shard."""


def choose_members(inventory: Inventory, prefixes: Prefixes | None, *, settings: Prediction, run: str) -> list[Stage]:
    """The deepest stage of every answering prefix, and prototypes beside them, in the order of the shards. Without
    prefixes, those that serve by the settings.
    """
    if prefixes is not None:
        pairs = prefixes.items() if isinstance(prefixes, Mapping) else prefixes
        members = sorted({_stage(*pair) for pair in pairs}, key=_place)
        if not members:
            raise InputError("prefixes", "names no shard; leave it out to have all answer that can")
        dead = [
            stage for stage in members if not stage.prefix or any(link not in inventory.alive for link in stage.chain)
        ]
        if dead:
            raise InputError("prefixes", [f"{stage} is not alive" for stage in dead])
    else:
        members = _serving(inventory, settings)
    if members:
        return members
    remedy = "the run holds no records"
    if sum(inventory.records.values()):
        remedy = f"run `s3t {inventory.training_command} {run}`"
    raise NoLiveShardError(f"no shard of {run} has a live prefix that holds a record, so nothing can answer; {remedy}")


def parts_within(members: Sequence[Stage], *, sisa_weight: float) -> list[float] | None:
    """Weight of each member within its shard; None for equal weights."""
    _, classifiers = by_kind(members)
    return [1 - sisa_weight if stage in classifiers else sisa_weight for stage in members] if classifiers else None


def _serving(inventory: Inventory, settings: Prediction) -> list[Stage]:
    if settings.ensemble == "sequences":
        members = [
            Stage(shard, serving.prefix)
            for shard in range(len(inventory.orders))
            for serving in inventory.serving_all(shard)
        ]
    else:
        members = [Stage(shard, serving.prefix) for shard, serving in inventory.members().items()]
    answering = {stage.shard for stage in members}
    beside = [
        classifier
        for shard, classifier in inventory.classifiers().items()
        if shard in answering or settings.prototypes_alone
    ]
    return sorted(members + beside, key=_place)


def _place(stage: Stage) -> tuple[int, Kind, Order]:
    """Sort key of members: by shard, prototypes after the model of their shard."""
    return stage.shard, stage.kind, stage.prefix


def _stage(shard: int, prefix: Order, _key: str = "", kind: Kind = "model") -> Stage:
    return Stage(shard, tuple(prefix), kind)
