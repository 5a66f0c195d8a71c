"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.drawing import LOOKS, curve, legend_below, panels, title
from experiments.kept_by_forests.experiment import FIXED, FOREST, MOMENTS, SISA, SISA_FOREST, frontier

STYLES = {FOREST: ("survival", "-"), FIXED: ("cyclic", "-"), SISA: ("SISA", "-"), SISA_FOREST: ("SISA", ":")}
"""Look and dashes: a colour for forests, fixed orders and SISA each."""
TITLES = ("Before the next request", "Right after a hit")


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """A panel a moment: accuracy against hours of repairs, a curve a kind of system through the best of its policies, a
    mark each policy. What is never repaired costs nothing, and lies left of the picture."""
    all_axes = panels(figure, 1, 2, height=4.2, sharey=True)
    for axes, moment, text in zip(all_axes, MOMENTS, TITLES, strict=True):
        for system, (style, dashes) in STYLES.items():
            policies = results["summary"]["systems"][system].values()
            placed = [(each["hours"], 100 * each[moment]) for each in policies if each["hours"]]
            edge = frontier(placed)
            curve(axes, [x for x, _ in edge], [y for _, y in edge], style, system, linestyle=dashes, marker="")
            axes.plot(
                [x for x, _ in placed],
                [y for _, y in placed],
                linestyle="none",
                marker=LOOKS[style].marker or ("x" if system == SISA else "+"),
                color=LOOKS[style].colour,
            )
        axes.set_xscale("log")
        axes.xaxis.set_minor_formatter(NullFormatter())
        title(axes, text, x="hours of repairs", y="accuracy (%), dead as 0" if axes is all_axes[0] else "")
    legend_below(figure, all_axes[0], columns=len(STYLES))
