"""Cost of repairs against the slices that serve, a line a way to repair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from s3t.drawing.figure import BLUE, GREEN, GREY, INK, ORANGE, drawn

_STYLES = (
    {"color": GREEN, "marker": "o", "linewidth": 2.0},
    {"color": ORANGE, "marker": "s", "linewidth": 1.4},
    {"color": INK, "linestyle": ":", "linewidth": 1.4},
)
_ORDERS = ("D", "^", "v", "x")
"""Markers of fixed orders, few orders first."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Points of a way to repair."""

    label: str
    """Name in the legend."""
    depths: Sequence[float]
    """Mean slices that serve, ascending."""
    costs: Sequence[float]
    """Cost of repairs at each depth, above 0; all curves in one unit."""


def draw_frontier(
    curves: Sequence[Curve],
    fixed: Sequence[Curve],
    path: Path,
    *,
    title: str,
    cost: str,
    slices: int,
    proposal: tuple[float, float],
) -> None:
    """Draw cost against mean depth.

    Args:
        fixed: of fixed orders, up to four numbers of them.
    """
    from matplotlib.ticker import MaxNLocator

    with drawn(path, height=4.6) as figure:
        axes = figure.add_subplot()
        for curve, chosen in zip(curves, _STYLES, strict=False):
            axes.plot(curve.depths, curve.costs, label=curve.label, markersize=4, zorder=3, **chosen)
        for curve, marker in zip(fixed, _ORDERS, strict=False):
            style = {"color": BLUE, "marker": marker, "linewidth": 0.8, "markersize": 4}
            axes.plot(curve.depths, curve.costs, label=curve.label, **style)
        ring = {"s": 120, "facecolors": "none", "edgecolors": INK, "linewidths": 1.4}
        axes.scatter([proposal[0]], [proposal[1]], label="proposed", zorder=4, **ring)
        axes.set_yscale("log")  # a deep stage costs many times a first one
        axes.set_xlim(0, slices * 1.03)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(axis="y", color=GREY, alpha=0.25, linewidth=0.6)
        axes.set_xlabel(f"slices that serve in the mean (of {slices})")
        axes.set_ylabel(cost)
        axes.set_title(title, fontsize=10, color=INK)
        axes.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
