"""Iterative cyclic rotation (paper, Section 3.3 and Algorithm 1).

Two departures from the paper. For B < L its first B rotations are adjacent, and their prefixes overlap; ours are
spaced L/B apart, which keeps the prefixes disjoint. For B > L its suffix rotations are cut off at B, so the last ones
favour some slices; ours are dealt round-robin over the first slice.
"""

from __future__ import annotations

import math

from s3t.sequences.selector import Order


def cyclic(*, slices: int, budget: int) -> tuple[Order, ...]:
    """Exactly `budget` distinct orders; every slice is at the top equally often, give or take one.

    Args:
        slices: L, at least 1.
        budget: B, from 1 to L!.

    Raises:
        ValueError: `budget` is out of range.

    >>> cyclic(slices=4, budget=4)
    ((0, 1, 2, 3), (1, 2, 3, 0), (2, 3, 0, 1), (3, 0, 1, 2))
    >>> cyclic(slices=4, budget=2)
    ((0, 1, 2, 3), (2, 3, 0, 1))
    >>> cyclic(slices=3, budget=5)
    ((0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 2, 1), (1, 0, 2))
    """
    if slices < 1 or budget < 1 or (slices <= 20 and budget > math.factorial(slices)):
        raise ValueError(f"budget {budget} is not between 1 and {slices}!")
    if budget <= slices:
        return tuple(_rotated(slices, (index * slices // budget,)) for index in range(budget))
    return tuple(_rotated(slices, _turns(slices, index)) for index in range(budget))


def _turns(slices: int, index: int) -> tuple[int, ...]:
    """The index's digits in base L, L-1, ..., lowest first: how far each suffix is rotated."""
    turns = []
    for length in range(slices, 1, -1):
        index, turn = divmod(index, length)
        turns.append(turn)
    return tuple(turns)


def _rotated(slices: int, turns: tuple[int, ...]) -> Order:
    """0..L-1 rotated by turns[0], then its suffix after position i rotated by turns[i]."""
    order = list(range(slices))
    for position, turn in enumerate(turns):
        suffix = order[position:]
        order[position:] = suffix[turn:] + suffix[:turn]
    return tuple(order)
