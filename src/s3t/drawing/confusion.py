"""A picture of which labels are taken for which."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.drawing.figure import INK, SCALE, check_picture, drawn

CELL, LARGEST = 0.18, 1.0
"""Inches of a cell: at least, so that its label can be read; at most."""
SMALL_PICTURE, NARROWEST = 5.0, 5.5
"""Inches that the cells of a few classes fill; and of the whole picture's width, which its title needs."""
MOST_COUNTED = 120
"""Classes whose cells have their counts written in them."""


def draw_confusion(confusion: NDArray[np.int64], classes: Sequence[str], path: Path, *, title: str) -> None:
    """Draw a confusion matrix: a row a right label, a column an answer, coloured by the share of the row.

    Args:
        confusion: C x C records.
    """
    check_picture(path)
    count = len(classes)
    cell = float(np.clip(SMALL_PICTURE / count, CELL, LARGEST))
    margin = 0.9 + 0.075 * max(map(len, classes))  # the longest label beside the cells, and the axis' name
    side = cell * count + margin
    totals = confusion.sum(axis=1, keepdims=True)
    shares = np.divide(confusion, totals, out=np.zeros(confusion.shape), where=totals > 0)
    with drawn(path, height=side + 0.4, width=max(NARROWEST, side + 0.9)) as figure:
        axes = figure.subplots()
        image = axes.imshow(shares, cmap=SCALE, vmin=0, vmax=1, aspect="equal")
        size = min(9.0, cell * 72 * 0.55)
        axes.set_xticks(range(count), classes, rotation=90, fontsize=size)
        axes.set_yticks(range(count), classes, fontsize=size)
        axes.set_xticks(np.arange(count + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(count + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#e8e8e8", linewidth=0.4)
        axes.tick_params(which="both", length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("answer")
        axes.set_ylabel("label")
        axes.set_title(title)
        if count <= MOST_COUNTED:
            _write_counts(axes, confusion, shares, cell)
        bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.01, shrink=min(1.0, 4 / side))
        bar.set_label("share of the label's records")
        bar.outline.set_visible(False)


def _write_counts(axes: Any, confusion: NDArray[np.int64], shares: NDArray[np.float64], cell: float) -> None:
    """Each count in its cell, but for 0; smaller where it has many digits."""
    for row, column in zip(*np.nonzero(confusion), strict=True):
        text = str(confusion[row, column])
        colour = "white" if shares[row, column] > 0.55 else INK
        size = min(9.0, cell * 72 * min(0.55, 1.3 / len(text)))  # a digit is as wide as 0.6 of its height
        axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=size)
