"""What a selector of slice sequences is."""

from __future__ import annotations

from typing import Protocol

Order = tuple[int, ...]
"""A permutation of 0..L-1: the slices of a shard in the order they are trained, top block first. A shorter one
is a prefix."""


class Selector(Protocol):
    """Chooses the orders of a shard from declared inputs, never from the number of records in a slice."""

    def __call__(self, *, slices: int, budget: int) -> tuple[Order, ...]:
        """Exactly `budget` distinct orders of `slices` slices; 1 <= budget <= slices!."""
        ...
