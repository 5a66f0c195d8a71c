"""The chosen orders of a shard: as paths in a tree (paper, Figure 3) or, where they are many, as rows of cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path

from s3t.drawing.cells import draw_cells
from s3t.drawing.tree import draw_tree
from s3t.sequences import Order

WHOLE_TREE_LEAVES = 120
"""Up to here the whole permutation tree is drawn, those that are not chosen in grey."""
TREE_SLICES, TREE_ORDERS = 24, 40
"""Up to here the trie of the chosen orders is drawn; beyond, cells."""


def draw_orders(orders: Sequence[Order], path: Path, *, title: str, prior: Sequence[float] | None = None) -> None:
    """Draw the orders of a shard, sorted.

    Args:
        orders: B distinct orders of L slices.
        path: a file to write, see `check_picture`.
        title: what stands above.
        prior: L probabilities, which colour the slices; None: they are all alike.

    Raises:
        StorageError: the disk refused.
    """
    slices = len(orders[0])
    if slices < WHOLE_TREE_LEAVES and math.factorial(slices) <= WHOLE_TREE_LEAVES:
        draw_tree(list(itertools.permutations(range(slices))), orders, path, title=title, prior=prior)
    elif slices <= TREE_SLICES and len(orders) <= TREE_ORDERS:
        draw_tree(sorted(orders), orders, path, title=title, prior=prior)
    else:
        draw_cells(sorted(orders), path, title=title, prior=prior)
