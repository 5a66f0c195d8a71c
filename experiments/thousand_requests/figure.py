"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import LOOKS, legend_below, panels, title

COLOURS = [LOOKS[name].colour for name in ("SISA", "few", "cyclic", "survival", "sorted-cyclic")]


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Three panels of bars, a group a policy, a bar a system: dead shards, compute, depth."""
    summary, policies = results["summary"], results["config"]["policies"]
    systems = summary["systems"]
    told = {
        "dead_shard_share": ("Shards that are dead", "share of shards (%)", 100.0),
        "compute": ("Training after requests", "hours", 1 / 3600),
        "mean_depth": ("What shards serve with", "slices, mean", 1.0),
    }
    all_axes = panels(figure, 3, 1, height=7.2)
    for axes, (what, (text, unit, scale)) in zip(all_axes, told.items(), strict=True):
        for number, (name, found) in enumerate(systems.items()):
            places = [place + 0.8 * (number + 0.5) / len(systems) - 0.4 for place in range(len(policies))]
            axes.bar(
                places,
                [scale * found[policy][what] for policy in policies],
                width=0.72 / len(systems),
                color=COLOURS[number % len(COLOURS)],
                label="SISA" if name == "sisa" else name,
            )
        axes.set_xticks(range(len(policies)), policies)
        axes.grid(visible=False, axis="x")
        title(axes, text, x="", y=unit)
    full = summary["full"]["compute"] / 3600
    all_axes[1].set_title(f"Training after requests; full retraining would take {full:.0f} hours", pad=8)
    legend_below(figure, all_axes[0], columns=len(systems))
