"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import curve, legend_below, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel a task: accuracy over deletions, a curve a system."""
    config, summary = results["config"], results["summary"]
    all_axes = panels(figure, 1, len(config["tasks"]), height=3.9)
    for axes, name in zip(all_axes, config["tasks"], strict=True):
        for number, budget in enumerate(config["budgets"]):
            for selector, values in summary[name][f"B={budget}"]["accuracy"].items():
                curve(
                    axes,
                    config["deletions"],
                    [100 * value for value in values.values()],
                    selector,
                    f"{budget} orders, {selector}",
                    linestyle="-" if number == len(config["budgets"]) - 1 else "--",
                )
        title(axes, name, x="deletions", y="test accuracy (%), dead counted as 0")
    legend_below(figure, all_axes[0], columns=4)
