"""A tree of orders: the root at the left, a node a prefix, labelled with its last slice; chosen paths in green."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from s3t.drawing.figure import GREEN, GREY, INK, PALE, WIDTH, drawn
from s3t.drawing.positions import colour_scale, draw_scale, label_positions, readable_on
from s3t.drawing.trie import Node, heights, trie
from s3t.sequences import Order

LARGEST_LABEL, SMALLEST_LABEL = 11.0, 5.0
"""Points; 7 pixels where the picture is 800 wide."""
_CIRCLE = 1.75
"""Its diameter, in heights of the label within."""
_FEW_LEAVES, _NEAR, _FAR = 24, 0.6, 0.22
"""Up to so many leaves, one that is not chosen gets 0.6 of the room of one that is; where there are more, 0.22."""


def draw_tree(
    leaves: Sequence[Order], orders: Sequence[Order], path: Path, *, title: str, prior: Sequence[float] | None
) -> None:
    """Draw all leaves, and the paths to the chosen ones above the others.

    Args:
        leaves: distinct orders, sorted.
        orders: those of them that are chosen.
        path: a file to write.
        title: what stands above.
        prior: L probabilities, which colour the slices.

    Raises:
        StorageError: the disk refused.
    """
    slices, marked = len(leaves[0]), set(orders)
    aside = _NEAR if len(leaves) <= _FEW_LEAVES else _FAR
    room = np.array([1.0 if leaf in marked else aside for leaf in leaves])
    room *= np.clip(7 / room.sum(), 0.1, 0.34)  # inches
    nodes = trie(leaves, orders)
    places = heights(nodes, np.cumsum(room) - room / 2)
    root = 1 - max(1.0, slices / 10)  # far enough for its many edges to part
    with drawn(path, height=max(float(room.sum()), 1.0) + 0.8) as figure:
        axes = figure.add_subplot()
        label_positions(axes, slices, title)
        axes.set(xlim=(root - 0.03 * slices, slices + 0.4), ylim=(room.sum(), 0))
        axes.scatter([root], [places[()]], s=40, color=INK, zorder=4)
        _draw_edges(axes, nodes, places, root)
        fills: list[Any] = ["white"] * slices
        if prior is not None:
            scale = colour_scale(slices, prior)
            fills = [scale.to_rgba(value)[:3] for value in prior]
            draw_scale(figure, axes, scale, prior)
        most = min(LARGEST_LABEL, 72 * 0.26 * WIDTH / (slices + 1 - root))
        for depth, level in itertools.groupby(nodes, key=lambda node: len(node.prefix)):
            _draw_level(axes, depth, list(level), places, fills, most)


def _draw_edges(axes: Any, nodes: Sequence[Node], places: dict[Order, float], root: float) -> None:
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path as Curve

    codes = [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4]
    for chosen, colour, width, above in ((False, PALE, 0.6, 1), (True, GREEN, 1.4, 2)):
        curves = []
        for node in nodes:
            if node.chosen == chosen:
                right, start, end = len(node.prefix), places[node.prefix[:-1]], places[node.prefix]
                left = right - 1 if right > 1 else root
                middle = (left + right) / 2
                curves.append(Curve([(left, start), (middle, start), (middle, end), (right, end)], codes))
        axes.add_collection(
            PathCollection(curves, facecolors="none", edgecolors=colour, linewidths=width, zorder=above)
        )


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Points: of the labels of chosen nodes, which have circles where there is room; of the labels of others, or of
    dots instead."""

    label: float
    circled: bool
    other: float
    dotted: bool


def _sizes(nodes: Sequence[Node], places: dict[Order, float], most: float) -> _Sizes:
    """What fits between the nodes of a level."""
    gaps = [np.inf, np.inf, np.inf]  # between neighbours of which none, one and both are chosen
    for above, below in itertools.pairwise(nodes):
        kind = above.chosen + below.chosen
        gaps[kind] = min(gaps[kind], 72 * (places[below.prefix] - places[above.prefix]))
    other = min(0.8 * most, 0.62 * gaps[0], 0.45 * gaps[1])
    dotted = other < SMALLEST_LABEL
    other = min(4.0, 0.7 * gaps[0], gaps[1]) if dotted else other
    label = min(most, 0.88 / _CIRCLE * gaps[2], (0.95 * gaps[1] - other / 2) * 2 / _CIRCLE)
    if label >= SMALLEST_LABEL:
        return _Sizes(label=label, circled=True, other=other, dotted=dotted)
    return _Sizes(label=min(most, 0.75 * gaps[2], gaps[1]), circled=False, other=other, dotted=dotted)


def _draw_level(
    axes: Any, depth: int, nodes: Sequence[Node], places: dict[Order, float], fills: Sequence[Any], most: float
) -> None:
    sizes = _sizes(nodes, places, most)
    chosen = [node for node in nodes if node.chosen]
    others = [node for node in nodes if not node.chosen]
    if sizes.circled:
        axes.scatter(
            [depth] * len(chosen),
            [places[node.prefix] for node in chosen],
            s=(_CIRCLE * sizes.label) ** 2,
            color=[fills[node.prefix[-1]] for node in chosen],
            edgecolors=GREEN,
            linewidths=1.1,
            zorder=3,
        )
    for node in chosen:
        fill = fills[node.prefix[-1]]
        _write(axes, node, places, sizes.label, readable_on(fill), None if sizes.circled else fill)
    if sizes.dotted:
        axes.scatter(
            [depth] * len(others),
            [places[node.prefix] for node in others],
            s=sizes.other**2,
            color=PALE,
            linewidths=0,
            zorder=3,
        )
    else:
        for node in others:
            _write(axes, node, places, sizes.other, GREY, "white")


def _write(axes: Any, node: Node, places: dict[Order, float], size: float, colour: str, behind: Any) -> None:
    """A node's slice, on a patch that hides the edge behind it, or on nothing."""
    patch = None if behind is None else {"facecolor": behind, "edgecolor": "none", "pad": 0.6}
    axes.text(
        len(node.prefix),
        places[node.prefix],
        str(node.prefix[-1]),
        ha="center",
        va="center_baseline",
        fontsize=size,
        color=colour,
        bbox=patch,
        zorder=3,
    )
