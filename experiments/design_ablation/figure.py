"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.design_ablation.experiment import AS_MANY
from experiments.drawing import LOOKS, legend_below, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel a task: accuracy over the cost, a curve a direction, a point a share that is seen again."""
    config, summary = results["config"], results["summary"]
    all_axes = panels(figure, 1, len(config["tasks"]), height=3.8)
    looks = {"top-down": LOOKS["survival"], "bottom-up": LOOKS["cyclic"]}
    for axes, name in zip(all_axes, config["tasks"], strict=True):
        for direction in config["directions"]:
            found = [summary[name][f"{direction}, {replay}"] for replay in config["replays"]]
            axes.errorbar(
                [one["record_passes"] / 1000 for one in found],
                [100 * one["accuracy"] for one in found],
                yerr=[100 * (one["spread"] or 0.0) for one in found],
                color=looks[direction].colour,
                marker=looks[direction].marker,
                capsize=3,
                label=direction,
            )
            for replay, one in zip(config["replays"], found, strict=True):
                axes.annotate(
                    f"{replay:g}",
                    (one["record_passes"] / 1000, 100 * one["accuracy"]),
                    xytext=(4, -11),
                    textcoords="offset points",
                    fontsize=8.5,
                    color=looks[direction].colour,
                )
            if config["as_many_passes"]:
                longer = summary[name][f"{direction}, {AS_MANY}"]
                axes.plot(
                    [longer["record_passes"] / 1000],
                    [100 * longer["accuracy"]],
                    color=looks[direction].colour,
                    marker=looks[direction].marker,
                    markerfacecolor="none",
                    markersize=9,
                    zorder=5,
                    linestyle="none",
                    label=f"{direction}, nothing again, as many records",
                )
        title(axes, name, x="thousands of records passed through the model", y="test accuracy (%)")
    legend_below(figure, all_axes[0], columns=2)
