"""The picture of the results."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from experiments.drawing import LOOKS, legend_below, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel a task: the score over the number of slices, a curve for each number of layers a slice."""
    config, summary = results["config"], results["summary"]
    all_axes = panels(figure, 1, len(config["tasks"]), height=3.8)
    widths = sorted({layers for layers, _ in config["shapes"]})
    colours = matplotlib.colormaps["viridis"]
    for axes, name in zip(all_axes, config["tasks"], strict=True):
        for number, layers in enumerate(widths):
            slices = sorted(count for width, count in config["shapes"] if width == layers)
            found = [summary[name][f"{layers}x{count}"] for count in slices]
            axes.errorbar(
                slices,
                [100 * one["score"] for one in found],
                yerr=[100 * (one["spread"] or 0.0) for one in found],
                color=colours(0.9 * number / max(1, len(widths) - 1)),
                marker="o",
                capsize=3,
                label=f"{layers} layers a slice" if layers > 1 else "1 layer a slice",
            )
        guess = max(100 * row["guess"] for row in results["rows"] if row["task"] == name)
        if guess > axes.get_ylim()[0]:
            axes.axhline(guess, color=LOOKS["random"].colour, linestyle=":", zorder=0)
            axes.annotate("a guess", (axes.get_xlim()[1], guess), ha="right", va="bottom", fontsize=9)
        axes.set_xticks(sorted({count for _, count in config["shapes"]}))
        title(axes, name, x="slices", y="test accuracy (%), bars: seeds")
    legend_below(figure, all_axes[0], columns=len(widths))
