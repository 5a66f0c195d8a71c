"""Many orders: a row an order, a column a position, coloured by slice. Cells of a shared prefix are one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from s3t.drawing.figure import WIDTH, drawn
from s3t.drawing.positions import colour_scale, draw_scale, label_positions, readable_on
from s3t.drawing.trie import Node, trie
from s3t.sequences import Order

MOST_CELLS = 500_000
"""Beyond, cells are neither parted by lines nor labelled."""
SMALLEST_LABEL = 3.9
"""Points; 5 pixels where the picture is 800 wide: 64 labels side by side."""
THINNEST = 2.5
"""Of a cell with a line above it, points."""


def draw_cells(leaves: Sequence[Order], path: Path, *, title: str, prior: Sequence[float] | None) -> None:
    """Draw distinct orders, sorted.

    Raises:
        StorageError: the disk refused.
    """
    columns = np.asarray(leaves)
    slices = columns.shape[1]
    height = float(np.clip(0.22 * len(leaves), 1.5, 7))
    with drawn(path, height=height + 0.9) as figure:
        axes = figure.add_subplot()
        label_positions(axes, slices, title)
        scale = colour_scale(slices, prior)
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
            _mark(axes, trie(leaves, ()), [scale.to_rgba(value)[:3] for value in values], 72 * height / len(leaves))
        draw_scale(figure, axes, scale, prior)


def _mark(axes: Any, nodes: Sequence[Node], fills: Sequence[Any], points: float) -> None:
    """White lines between the nodes, and their slices, where there is room; a row is so many points high."""
    from matplotlib.collections import LineCollection

    tall = [node for node in nodes if (node.high - node.low) * points >= THINNEST]
    lines = [[(len(node.prefix) - 0.5, node.low), (len(node.prefix) + 0.5, node.low)] for node in tall if node.low > 0]
    axes.add_collection(LineCollection(lines, colors="white", linewidths=0.5))
    widest = min(9.0, 72 * 0.45 * WIDTH / len(fills))
    inks = [readable_on(fill) for fill in fills]
    for node in tall:
        size = min(widest, 0.72 * (node.high - node.low) * points)
        if size >= SMALLEST_LABEL:
            index, place = node.prefix[-1], (len(node.prefix), (node.low + node.high) / 2)
            axes.text(*place, str(index), ha="center", va="center_baseline", fontsize=size, color=inks[index])
