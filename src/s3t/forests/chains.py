"""A forest: the live chains of a shard. A chain is the prefix of its deepest stage; shorter prefixes are alive, too.

Which chains there are follows from the slices that were hit, and when; never from what a record holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from s3t.sequences import Order

Chains: TypeAlias = tuple[Order, ...]
"""Chains of which none is the beginning of another, the longest first; of equal length, the lesser slices first."""


def leaves(prefixes: Iterable[Order]) -> Chains:
    """The chains of a forest, from its live prefixes or some of them; empty ones do not count.

    >>> leaves([(0,), (0, 1), (), (2,), (0, 1, 3)])
    ((0, 1, 3), (2,))
    """
    longest: list[Order] = []
    for prefix in sorted(set(prefixes), key=_rank):
        if prefix and not any(chain[: len(prefix)] == prefix for chain in longest):
            longest.append(prefix)
    return tuple(longest)


def without(chains: Iterable[Order], index: int) -> Chains:
    """The forest once a slice has lost a record: every chain ends above it.

    >>> without([(0, 1, 3), (2, 1)], 1)
    ((0,), (2,))
    """
    return leaves(chain[: chain.index(index)] if index in chain else chain for chain in chains)


def prefixes_of(chains: Iterable[Order]) -> frozenset[Order]:
    """Every live prefix, one a stage.

    >>> sorted(prefixes_of([(0, 1), (2,)]))
    [(0,), (0, 1), (2,)]
    """
    return frozenset(chain[:depth] for chain in chains for depth in range(1, len(chain) + 1))


def depth_of(chains: Chains) -> int:
    """Slices that serve: those of the longest chain.

    >>> depth_of(((0, 1), (2,))), depth_of(())
    (2, 0)
    """
    return len(chains[0]) if chains else 0


def depths_after_hit(chains: Chains, slices: int) -> list[int]:
    """Slices that serve once a slice has lost a record, for each of L slices.

    >>> depths_after_hit(((0, 1), (2,)), 3)
    [1, 1, 2]
    """
    depths = [0] * slices
    for chain in chains:
        ends = {index: place for place, index in enumerate(chain)}
        depths = [max(depth, ends.get(index, len(chain))) for index, depth in enumerate(depths)]
    return depths


def _rank(chain: Order) -> tuple[int, Order]:
    return -len(chain), chain
