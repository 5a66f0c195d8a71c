"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import column, curve, legend_below, panels, title

NAMES = {
    "survival": "survival (ours)",
    "cyclic": "cyclic (ours: rotations spaced out)",
    "cyclic-adjacent": "cyclic-adjacent (paper, Algorithm 1)",
    "random": "random (mean ± standard deviation of draws)",
}


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Two panels: distance and depth against budget."""
    left, right = panels(figure, 1, 2, height=4.2)
    config, rows = results["config"], results["rows"]
    for axes, what, chosen in ((left, "distance", rows[1:]), (right, "depth", rows)):
        budgets = column(chosen, "budget")
        if what == "distance":
            curve(axes, budgets, column(chosen, "bound"), "bound", linewidth=6, color="#cfcfcf")
        for name, label in NAMES.items():
            values = column(chosen, f"{name.replace('-', '_')}_{what}")
            low = high = None
            if name == "random":
                spread = column(chosen, f"random_{what}_std")
                low = [value - std for value, std in zip(values, spread, strict=True)]
                high = [value + std for value, std in zip(values, spread, strict=True)]
            curve(
                axes,
                budgets,
                values,
                name,
                label,
                low=low,
                high=high,
                marker="",
                linewidth=3.6 if name == "survival" else 1.7,
            )
        axes.set_xscale("log")
        ticks = [1, 2, 5, 10, 20, 50, 120]
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
    left.plot([], [], color="#cfcfcf", linewidth=6, label="counting bound")
    left.set_xlim(2, rows[-1]["budget"])
    right.set_xlim(1, rows[-1]["budget"])
    horizon = ", ".join(map(str, config["horizon"]))
    title(
        left, f"How far apart (L = {config['slices']})", x="budget B (sequences)", y="mean Hamming distance (positions)"
    )
    title(
        right,
        f"What is served (mean over r = {horizon})",
        x="budget B (sequences)",
        y="expected depth after r deletions (slices)",
    )
    legend_below(figure, left, columns=2)
