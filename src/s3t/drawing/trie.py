"""The trie of some orders: shared prefixes are one node. Pure: where things are, not how they look."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from s3t.sequences import Order


@dataclass(frozen=True, kw_only=True)
class Node:
    """A prefix.

    Attributes:
        prefix: its slices; its depth is their number, from 1.
        low: the first leaf under it.
        high: the leaf after the last one under it.
        chosen: whether a chosen order goes through it.
    """

    prefix: Order
    low: int
    high: int
    chosen: bool


def trie(leaves: Sequence[Order], chosen: Collection[Order]) -> list[Node]:
    """All prefixes of the leaves, each once: shallow ones first, then from the first leaf to the last.

    Args:
        leaves: distinct orders of one length, sorted.
        chosen: those to mark.

    >>> [(node.prefix, node.low, node.high) for node in trie([(0, 1, 2), (0, 2, 1), (1, 0, 2)], ())[:4]]
    [((0,), 0, 2), ((1,), 2, 3), ((0, 1), 0, 1), ((0, 2), 1, 2)]
    """
    marked = set(chosen)
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
        nodes += [
            Node(prefix=leaves[low][:depth], low=low, high=high, chosen=not marked.isdisjoint(leaves[low:high]))
            for low, high in finer
        ]
        runs = finer
    return nodes


def heights(nodes: Sequence[Node], rows: NDArray[np.float64]) -> dict[Order, float]:
    """Where each node is: a leaf at its row, any other in the middle of its children; the root is ().

    Args:
        nodes: as `trie` gives them.
        rows: of the leaves.

    >>> heights(trie([(0, 1), (1, 0)], ()), np.array([0.0, 1.0]))[()]
    0.5
    """
    deepest = len(nodes[-1].prefix)
    children: dict[Order, list[float]] = {}
    found: dict[Order, float] = {}
    for node in reversed(nodes):
        inner = children.get(node.prefix, [])
        found[node.prefix] = float(rows[node.low] if len(node.prefix) == deepest else np.mean([inner[0], inner[-1]]))
        children.setdefault(node.prefix[:-1], []).append(found[node.prefix])
    found[()] = float(np.mean([children[()][0], children[()][-1]]))
    return found
