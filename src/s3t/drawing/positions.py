"""What pictures of orders share: an axis of positions, and the colours of slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from s3t.drawing.figure import GREY, INK, SCALE

_EACH = 24
"""Up to so many positions, each has its number."""


def label_positions(axes: Any, slices: int, title: str) -> None:
    """The positions 1 to L above the picture, and no frame."""
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


def colour_scale(slices: int, prior: Sequence[float] | None) -> Any:
    """From probabilities, or from slices where there is no prior, to colours."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    return ScalarMappable(norm=Normalize(0, slices - 1 if prior is None else max(prior)), cmap=SCALE)


def draw_scale(figure: Any, axes: Any, scale: Any, prior: Sequence[float] | None) -> None:
    """A bar that tells what the colours mean."""
    bar = figure.colorbar(scale, ax=axes, pad=0.01, aspect=30, shrink=0.7)
    bar.set_label("slice" if prior is None else "probability that a deletion hits the slice")
    bar.outline.set_visible(False)


def readable_on(colour: Any) -> str:
    """Ink or white, whichever is read better on the colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return INK if 0.299 * red + 0.587 * green + 0.114 * blue > 0.5 else "white"
