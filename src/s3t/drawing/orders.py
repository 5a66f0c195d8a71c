"""The orders of a shard: a row an order, a column a position, coloured by slice. Cells of a shared prefix are one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s3t.drawing.figure import GREY, INK, SCALE, WIDTH, drawn
from s3t.sequences import Order

MOST_CELLS = 500_000
"""Beyond, cells are neither parted by lines nor labelled."""
SMALLEST_LABEL = 3.9
"""Points; 5 pixels where the picture is 800 wide: 64 labels side by side."""
THINNEST = 2.5
"""Height of a cell with a line above it, in points."""
_EACH = 24
"""Largest number of positions that are all numbered."""


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
    """Nodes of the prefixes of all leaves, each once: shallow ones first, then in the leaves' order.

    Leaves are distinct orders of one length, sorted.

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


def draw_orders(orders: Sequence[Order], path: Path, *, title: str, prior: Sequence[float] | None = None) -> None:
    """Draw the orders of a shard, sorted.

    Args:
        prior: L probabilities, which colour the slices; None: they are all alike.
    """
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    leaves = sorted(orders)
    columns = np.asarray(leaves)
    slices = columns.shape[1]
    height = float(np.clip(0.22 * len(leaves), 1.5, 7))
    with drawn(path, height=height + 0.9) as figure:
        axes = figure.add_subplot()
        _label_positions(axes, slices, title)
        scale: Any = ScalarMappable(norm=Normalize(0, slices - 1 if prior is None else max(prior)), cmap=SCALE)
        axes.imshow(
            columns if prior is None else np.asarray(prior)[columns],
            cmap=scale.cmap,
            norm=scale.norm,
            aspect="auto",
            interpolation="nearest",
            extent=(0.5, slices + 0.5, len(leaves), 0),
        )
        if columns.size <= MOST_CELLS:
            values = range(slices) if prior is None else prior
            _mark(axes, trie(leaves), [scale.to_rgba(value)[:3] for value in values], 72 * height / len(leaves))
        _draw_scale(figure, axes, scale, prior)


def _mark(axes: Any, nodes: Sequence[Node], fills: Sequence[Any], points: float) -> None:
    """Draw white lines between the nodes, and their slices, where rows of `points` height have room."""
    from matplotlib.collections import LineCollection

    tall = [node for node in nodes if (node.high - node.low) * points >= THINNEST]
    lines = [[(len(node.prefix) - 0.5, node.low), (len(node.prefix) + 0.5, node.low)] for node in tall if node.low > 0]
    axes.add_collection(LineCollection(lines, colors="white", linewidths=0.5))
    widest = min(9.0, 72 * 0.45 * WIDTH / len(fills))
    inks = [_readable_on(fill) for fill in fills]
    for node in tall:
        size = min(widest, 0.72 * (node.high - node.low) * points)
        if size >= SMALLEST_LABEL:
            index, place = node.prefix[-1], (len(node.prefix), (node.low + node.high) / 2)
            axes.text(*place, str(index), ha="center", va="center_baseline", fontsize=size, color=inks[index])


def _label_positions(axes: Any, slices: int, title: str) -> None:
    """Write the positions 1 to L above the picture, and no frame."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=10, color=INK)
    axes.set_xlabel("position in the order (1: the top block, trained first)", color=INK, fontsize=8)
    axes.xaxis.set_label_position("top")
    axes.xaxis.tick_top()
    if slices <= _EACH:
        axes.set_xticks(range(1, slices + 1))
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=10))
    axes.tick_params(length=0, colors=GREY)
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_scale(figure: Any, axes: Any, scale: Any, prior: Sequence[float] | None) -> None:
    bar = figure.colorbar(scale, ax=axes, pad=0.01, aspect=30, shrink=0.7)
    bar.set_label("slice" if prior is None else "probability that a deletion hits the slice")
    bar.outline.set_visible(False)


def _readable_on(colour: Any) -> str:
    """Ink or white, whichever is read better on the colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
