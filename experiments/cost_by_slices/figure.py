"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.cost_by_slices.experiment import FIXED, FOREST, SISA, SISA_FOREST
from experiments.drawing import LOOKS, legend_below, panels, title

STYLES = {FOREST: "survival", SISA_FOREST: "cyclic", FIXED: "B=8", SISA: "SISA"}


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: cost of the repairs against the number of slices, a line a system; both axes are logarithmic."""
    (axes,) = panels(figure, 1, 1, height=4.2)
    for system, name in STYLES.items():
        rows, look = [row for row in results["rows"] if row["system"] == system], LOOKS[name]
        axes.plot(
            [row["slices"] for row in rows],
            [row["cost"] for row in rows],
            color=look.colour,
            linestyle=look.dashes,
            marker=look.marker or "o",
            label=system,
        )
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    slices = results["config"]["slices"]
    axes.set_xticks(slices, [str(number) for number in slices])
    legend_below(figure, axes, columns=len(STYLES))
    requests, share = results["config"]["requests"], 100 * results["config"]["share"]
    title(
        axes,
        f"Repairs over {requests:,} requests, {share:.0f} % of the slices serving",
        x="slices a shard",
        y="cost, full trainings",
    )
