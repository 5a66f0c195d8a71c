"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from experiments.drawing import column, curve, legend_below, panels, title

NAMES = {
    "bms": ("bms", "BMS, top B by score (paper)"),
    "least_likely": ("survival", "survival (ours): least likely on top"),
    "cyclic": ("cyclic", "cyclic, knows no prior (B = 1: SISA)"),
}


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Two panels: deletion rate and first failure against budget."""
    config, lines = results["config"], results["summary"]["curves"]
    left, right = panels(figure, 1, 2, height=4.4)
    budgets = column(lines, "budget")
    for axes, what in ((left, "rate"), (right, "first")):
        for curve_name, (look, label) in NAMES.items():
            name = f"{curve_name}_{what}"
            curve(
                axes,
                budgets,
                column(lines, name),
                look,
                label,
                # Those of the least likely slices would lie upon BMS's.
                low=None if curve_name == "least_likely" else column(lines, f"{name}_low"),
                high=None if curve_name == "least_likely" else column(lines, f"{name}_high"),
            )
        curve(axes, budgets, column(lines, f"uniform_{what}"), "uniform", "uniform prior")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.set_xlim(0, budgets[-1] + 0.5)
    title(left, "Until every shard is dead", x="budget B (sequences a shard)", y="deletions (expected)")
    title(right, "Until the first shard is dead", x="budget B (sequences a shard)", y="")
    figure.suptitle(
        f"m = {config['shards']}, L = {config['slices']}; medians over {config['systems']} systems, "
        "bands between quartiles; a Dirichlet prior for each shard",
        fontsize=10,
    )
    legend_below(figure, left, columns=2)
