"""The stages of a shard's sequences: one for each distinct prefix, so sequences share what they begin with.

A system with prototypes (ProtoSISA) has for each slice one stage more, which no other builds on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, TypeAlias

from s3t.sequences import Order

Kind: TypeAlias = Literal["model", "prototypes"]


class Stage(NamedTuple):
    """The last training step of a prefix: it trains block `depth` on the slices of `prefix`.

    Or the prototypes of a slice: class means that are made of that slice alone. With several slices, the classifier of
    their prototypes, which answers and is not stored.
    """

    shard: int
    prefix: Order
    kind: Kind = "model"

    @property
    def depth(self) -> int:
        """Slices in the prefix; also which block the stage trains, 1 at the top."""
        return len(self.prefix)

    @property
    def parent(self) -> Stage | None:
        """The stage one slice shorter, or None for the first, and for prototypes."""
        return Stage(self.shard, self.prefix[:-1]) if self.depth > 1 and self.kind == "model" else None

    @property
    def chain(self) -> tuple[Stage, ...]:
        """All stages from the first to this one: the blocks that are switched on when it serves. Of prototypes, those
        of every slice."""
        if self.kind == "prototypes":
            return tuple(self._replace(prefix=(index,)) for index in self.prefix)
        return tuple(Stage(self.shard, self.prefix[:depth]) for depth in range(1, self.depth + 1))

    def __str__(self) -> str:
        """The stage's name in messages."""
        slices = ", ".join(map(str, self.prefix))
        what = f"stage ({slices})" if self.kind == "model" else f"prototypes of slice {slices}"
        return f"{what} of shard {self.shard}"


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


def prototypes_of(orders: Iterable[Iterable[Order]]) -> tuple[Stage, ...]:
    """The prototypes of every slice of every shard.

    Args:
        orders: for each shard, its orders.

    >>> [stage.prefix for stage in prototypes_of([[(2, 0, 1)]])]
    [(0,), (1,), (2,)]
    """
    return tuple(
        Stage(shard, (index,), "prototypes") for shard, (first, *_) in enumerate(orders) for index in range(len(first))
    )
