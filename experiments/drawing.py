"""How the figures look: one hand for all. A name has the same colour, dashes and marker in every figure.

Colours are Okabe and Ito's, which colour-blind readers can tell apart; dashes and markers differ, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Values = Sequence[float]

WIDTH = 8.0
"""Inches. Shown at 800 pixels, a point of font size is 1.4 pixels."""
DOTS = 160
"""Per inch."""


class Look(NamedTuple):
    """Of a curve."""

    colour: str
    dashes: str = "-"
    marker: str = ""


LOOKS = {
    "survival": Look("#D55E00", "-", "o"),
    "cyclic": Look("#0072B2", "-", "s"),
    "cyclic-adjacent": Look("#56B4E9", "--", "D"),
    "bms": Look("#009E73", "-", "^"),
    "sorted-cyclic": Look("#CC79A7", "--", "v"),
    "random": Look("#767676", ":", "x"),
    "SISA": Look("#000000", "--", ""),
    "bound": Look("#000000", "-", ""),
    "logarithm": Look("#767676", "-.", ""),
    "rate": Look("#0072B2", "-", "o"),
    "B=1": Look("#56B4E9", ":", ""),
    "B=2": Look("#0072B2", "--", ""),
    "B=4": Look("#D55E00", "-", ""),
    "B=8": Look("#E69F00", "-", ""),
    "B=24": Look("#CC79A7", "-", ""),
    "few": Look("#56B4E9", "-", "D"),
    "first": Look("#D55E00", "-", "v"),
    "uniform": Look("#000000", "-.", ""),
    "paper": Look("#000000", "", "X"),
    "protosisa": Look("#767676", ":", ""),
    "full": Look("#009E73", "-.", "o"),
}

_PARAMETERS = {
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9.5,
    "legend.handlelength": 2.6,
    "lines.linewidth": 1.7,
    "lines.markersize": 5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "svg.hashsalt": "s3t",
}


def styled(draw: Callable[[Figure, dict[str, Any]], None], results: dict[str, Any], path: Path) -> None:
    """Draw results in the common style, and write the picture. The same results give the same bytes."""
    with matplotlib.rc_context(_PARAMETERS):
        figure = Figure(figsize=(WIDTH, 4), dpi=DOTS, layout="constrained")
        draw(figure, results)
        figure.savefig(path, dpi=DOTS, metadata={"Software": None})


def panels(figure: Figure, rows: int, columns: int, *, height: float, **options: Any) -> list[Axes]:
    """Axes, row by row, in a figure of that height in inches."""
    figure.set_size_inches(WIDTH, height)
    return list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def curve(
    axes: Axes,
    x: Values,
    y: Values,
    name: str,
    label: str | None = None,
    *,
    low: Values | None = None,
    high: Values | None = None,
    **options: Any,
) -> None:
    """A curve in the look of its name, with a band where ends are given."""
    look = LOOKS[name]
    style = {"color": look.colour, "linestyle": look.dashes or "none", "marker": look.marker, **options}
    axes.plot(x, y, label=label, **style)
    if low is not None and high is not None:
        axes.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)


def points(axes: Axes, x: Values, y: Values, name: str, label: str | None = None) -> None:
    """Points alone, hollow: what was simulated."""
    look = LOOKS[name]
    axes.plot(
        x,
        y,
        linestyle="none",
        marker="o",
        markersize=6,
        markerfacecolor="white",
        markeredgecolor=look.colour,
        label=label,
    )


def title(axes: Axes, text: str, *, x: str, y: str) -> None:
    """What a panel shows, and its axes with their units."""
    axes.set_title(text, pad=8)
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def legend_below(figure: Figure, *axes: Axes, columns: int) -> None:
    """One legend for all panels, under them, of what the axes show together."""
    shown = [pair for each in axes for pair in zip(*each.get_legend_handles_labels(), strict=True)]
    figure.legend(*zip(*shown, strict=True), loc="outside lower center", ncols=columns)


def beside(
    axes: Axes, x: float, y: float, text: str, name: str, *, dx: float = 6, dy: float = 0, **options: Any
) -> None:
    """A curve's name beside it, in its colour; dx and dy in points."""
    axes.annotate(
        text,
        (x, y),
        xytext=(dx, dy),
        textcoords="offset points",
        color=LOOKS[name].colour,
        va="center",
        fontsize=9.5,
        annotation_clip=False,
        **options,
    )


def column(rows: Sequence[dict[str, Any]], name: str) -> list[float]:
    """One number of every row."""
    return [row[name] for row in rows]
