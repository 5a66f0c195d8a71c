"""Who answers: the deepest stage of every member's prefix. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from s3t.errors import InputError, NoLiveShardError
from s3t.inventory import Inventory
from s3t.sequences import Order
from s3t.stages import Stage


def choose_members(inventory: Inventory, prefixes: Mapping[int, Order] | None, *, run: str) -> list[Stage]:
    """The deepest stage of every answering shard, in the order of the shards.

    Args:
        inventory: what is alive.
        prefixes: for each shard that shall answer, its prefix; None: those that serve.
        run: the run's folder, for the message.

    Raises:
        InputError: a prefix is not alive.
        NoLiveShardError: no shard can answer.
    """
    if prefixes is not None and not prefixes:
        raise InputError("prefixes", ["names no shard; leave it out to have all answer that can"])
    if prefixes is not None:
        members = [Stage(shard, tuple(prefix)) for shard, prefix in sorted(prefixes.items())]
        dead = [
            stage for stage in members if not stage.prefix or any(link not in inventory.alive for link in stage.chain)
        ]
        if dead:
            raise InputError("prefixes", [f"{stage} is not alive" for stage in dead])
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
