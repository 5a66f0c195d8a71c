"""The stages of a shard's sequences: one for each distinct prefix, so sequences share what they begin with."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from s3t.sequences import Order


class Stage(NamedTuple):
    """The last training step of a prefix: it trains block `depth` on the slices of `prefix`."""

    shard: int
    prefix: Order

    @property
    def depth(self) -> int:
        """Slices in the prefix; also which block the stage trains, 1 at the top."""
        return len(self.prefix)

    @property
    def parent(self) -> Stage | None:
        """The stage one slice shorter, or None for the first."""
        return Stage(self.shard, self.prefix[:-1]) if self.depth > 1 else None

    @property
    def chain(self) -> tuple[Stage, ...]:
        """All stages from the first to this one: the blocks that are switched on when it serves."""
        return tuple(Stage(self.shard, self.prefix[:depth]) for depth in range(1, self.depth + 1))

    def __str__(self) -> str:
        """As messages name it."""
        return f"stage ({', '.join(map(str, self.prefix))}) of shard {self.shard}"


def stages_of(orders: Iterable[Iterable[Order]]) -> tuple[Stage, ...]:
    """Every stage that the orders need, parents before children, shallow ones first so that all shards serve soon.

    Args:
        orders: for each shard, its orders.

    >>> [stage.prefix for stage in stages_of([[(0, 1, 2), (0, 2, 1)]])]
    [(0,), (0, 1), (0, 2), (0, 1, 2), (0, 2, 1)]
    """
    stages = {
        Stage(shard, order[:depth])
        for shard, chosen in enumerate(orders)
        for order in chosen
        for depth in range(1, len(order) + 1)
    }
    return tuple(sorted(stages, key=lambda stage: (stage.depth, stage.shard, stage.prefix)))
