"""The trie of some orders: shared prefixes are one node. Pure: where things are, not how they look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from s3t.sequences import Order


@dataclass(frozen=True, kw_only=True)
class Node:
    """A prefix.

    Attributes:
        prefix: its slices; its depth is their number, from 1.
        low: the first leaf under it.
        high: the leaf after the last one under it.
    """

    prefix: Order
    low: int
    high: int


def trie(leaves: Sequence[Order]) -> list[Node]:
    """All prefixes of the leaves, each once: shallow ones first, then from the first leaf to the last.

    Args:
        leaves: distinct orders of one length, sorted.

    >>> [(node.prefix, node.low, node.high) for node in trie([(0, 1, 2), (0, 2, 1), (1, 0, 2)])[:4]]
    [((0,), 0, 2), ((1,), 2, 3), ((0, 1), 0, 1), ((0, 2), 1, 2)]
    """
    runs = [(0, len(leaves))]
    nodes = []
    for depth in range(1, len(leaves[0]) + 1):
        finer = []
        for low, high in runs:
            start = low
            for leaf in range(low + 1, high + 1):
                if leaf == high or leaves[leaf][depth - 1] != leaves[start][depth - 1]:
                    finer.append((start, leaf))
                    start = leaf
        nodes += [Node(prefix=leaves[low][:depth], low=low, high=high) for low, high in finer]
        runs = finer
    return nodes
