"""s3t (the paper's): stage k trains block k, the blocks of the stages before it frozen."""

from __future__ import annotations

from dataclasses import dataclass

from s3t.methods.method import Method, Options, Width
from s3t.sequences import Order


@dataclass(frozen=True, kw_only=True)
class BlockAStage:
    """A block for every slice: the first stage trains the top one or, bottom-up, the bottom one.

    >>> blocks = BlockAStage(top_down=False)
    >>> [blocks.trained(depth, slices=3) for depth in (1, 2, 3)], blocks.links((2, 0))
    ([3, 2, 1], ((2,), (2, 0)))
    """

    top_down: bool
    width: Width = "layers_per_slice"

    def count(self, slices: int) -> int:
        """Number of blocks: one a slice."""
        return slices

    def trained(self, depth: int, slices: int) -> int:
        """The block of a depth: the next one at each stage."""
        return depth if self.top_down else slices + 1 - depth

    def links(self, prefix: Order) -> tuple[Order, ...]:
        """All prefixes of the prefix, the shortest first."""
        return tuple(prefix[:depth] for depth in range(1, len(prefix) + 1))


def s3t(options: Options) -> Method:
    if options.trainable == "all":
        raise ValueError("trainable: all belongs to sisa, protosisa and full; s3t freezes blocks, and has adapters")
    return Method(
        name="s3t", options=options, blocks=BlockAStage(top_down=options.direction == "top-down"), one_order=False
    )
