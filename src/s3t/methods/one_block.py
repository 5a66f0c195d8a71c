"""Methods with one block, the whole adapter or the model itself: every stage goes on with the block of the last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from s3t.methods.method import Method, Options, Width
from s3t.sequences import Order


@dataclass(frozen=True, kw_only=True)
class OneBlock:
    """A single block for all stages: the last stage alone is the model."""

    width: Width = "layers"
    top_down: bool = True

    def count(self, slices: int) -> int:
        """Number of blocks: 1."""
        return 1

    def trained(self, depth: int, slices: int) -> int:
        """The block that every stage trains: 1."""
        return 1

    def links(self, prefix: Order) -> tuple[Order, ...]:
        """The prefix itself: its stage is the whole model."""
        return (prefix,)


def of_one_block(name: str, *, one_slice: bool = False, has_prototypes: bool = False) -> Callable[[Options], Method]:
    """Constructor of a method that trains one block in one order; it refuses options that mean nothing then."""

    def method(options: Options) -> Method:
        if options.replay != 1.0 or options.direction != "top-down":
            raise ValueError(f"replay and direction belong to s3t; take them out or set another name than {name}")
        return Method(
            name=name,
            options=options,
            blocks=OneBlock(),
            one_order=True,
            one_slice=one_slice,
            has_prototypes=has_prototypes,
        )

    return method
