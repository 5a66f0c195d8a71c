"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import LOOKS, curve, legend_below, panels, title
from experiments.replay import counted
from experiments.settings import Grown

CHAINS = ("#CC79A7", "#009E73", "#E69F00")
"""Colours of forests."""


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """A column a task: accuracy over deletions, a curve a system; below it how far apart, a thin line a seed."""
    config = results["config"]
    tasks, grid, budgets = list(config["tasks"]), config["deletions"], config["budgets"]
    all_axes = panels(figure, 2, len(tasks), height=5.6, height_ratios=(3, 2))
    for name, above, below in zip(tasks, all_axes, all_axes[len(tasks) :], strict=False):
        for number, budget in enumerate(budgets):
            last = number == len(budgets) - 1
            found = results["summary"][name][f"B={budget}"]
            for selector, values in found["accuracy"].items():
                percents = [100 * value for value in values.values()]
                label = f"{budget} orders, {selector}"
                curve(above, grid, percents, selector, label, linestyle="-" if last else "--")
            if not last:
                continue
            for apart in _by_seed(results, name, budget):
                below.plot(grid, apart, color=LOOKS["random"].colour, linewidth=0.8)
            curve(below, grid, list(found["points_above"].values()), config["selectors"][-1])
        for number, own in enumerate(config.get("chains", [])):
            label = str(Grown.model_validate(own))
            values = results["summary"][name]["forests"][label]["accuracy"].values()
            colour = CHAINS[number % len(CHAINS)]
            above.plot(grid, [100 * value for value in values], color=colour, linestyle=":", label=label)
        below.axhline(0, color="black", linewidth=0.8, zorder=0)
        title(above, name, x="", y="accuracy (%), dead as 0")
        title(below, "How much more survival keeps; thin: seeds", x="deletions", y="points")
    legend_below(figure, all_axes[0], columns=3)


def _by_seed(results: dict[str, Any], name: str, budget: int) -> list[list[float]]:
    """By seed, the points that the last selector is above the first."""
    first, *_, last = results["config"]["selectors"]
    rows = {
        (row["train_seed"], row["selector"]): counted(row)
        for row in results["rows"]
        if (row["task"], row.get("budget")) == (name, budget)
    }
    return [
        [100 * (ours - theirs) for ours, theirs in zip(rows[seed, last], rows[seed, first], strict=True)]
        for seed in results["config"]["seeds"]
    ]
