"""Who answers: the deepest stage of every member's prefix. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from s3t.errors import InputError, NoLiveShardError
from s3t.inventory import Inventory
from s3t.sequences import Order
from s3t.stages import Stage


class Member(NamedTuple):
    """A prefix that answered."""

    shard: int
    prefix: Order
    """Its slices, in the order of training."""
    key: str
    """Of its deepest stage's artifact: the name of its files."""


Prefixes: TypeAlias = "Mapping[int, Order] | Sequence[Member | tuple[int, Order]]"
"""Who shall answer: for each shard its prefix; or shards with prefixes, perhaps several of a shard."""


def choose_members(inventory: Inventory, prefixes: Prefixes | None, *, voters: str, run: str) -> list[Stage]:
    """The deepest stage of every answering prefix, in the order of the shards.

    Args:
        inventory: what is alive.
        prefixes: who shall answer; None: who serves.
        voters: shards, of each of which the best prefix serves; or sequences: all live prefixes of each.
        run: the run's folder, for the message.

    Raises:
        InputError: a prefix is not alive.
        NoLiveShardError: no shard can answer.
    """
    if prefixes is not None:
        members = _asked_for(prefixes)
        if not members:
            raise InputError("prefixes", ["names no shard; leave it out to have all answer that can"])
        dead = [
            stage for stage in members if not stage.prefix or any(link not in inventory.alive for link in stage.chain)
        ]
        if dead:
            raise InputError("prefixes", [f"{stage} is not alive" for stage in dead])
    elif voters == "sequences":
        members = [
            Stage(shard, serving.prefix)
            for shard in range(len(inventory.orders))
            for serving in inventory.serving_all(shard)
        ]
    else:
        members = [Stage(shard, serving.prefix) for shard, serving in inventory.members().items()]
    if members:
        return members
    remedy = "the run holds no records"
    if sum(inventory.records.values()):
        remedy = f"run `s3t {'repair' if inventory.alive or inventory.generation else 'train'} {run}`"
    raise NoLiveShardError(
        f"none of the {len(inventory.orders)} shards of {run} has a live prefix that holds a record, so nothing can "
        f"answer; {remedy}"
    )


def _asked_for(prefixes: Prefixes) -> list[Stage]:
    pairs = prefixes.items() if isinstance(prefixes, Mapping) else prefixes
    return sorted({Stage(shard, tuple(prefix)) for shard, prefix, *_ in pairs})
