"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import LOOKS, legend_below, panels, title

SOLID, PALE = 1.0, 0.35
"""Opacity of a bar, and of what the training before the first request adds to it."""


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Four panels of bars, a group a policy, a bar a system: dead shards, downtime, compute, depth."""
    summary, policies = results["summary"], results["config"]["policies"]
    systems = summary["systems"]
    full = summary["full"]["compute"] / 3600
    told = {
        "dead_shard_share": ("Shards that are dead at a request", "share of shards (%)", 100.0),
        "shard_downtime": ("Time until dead shards answer again", "minutes, all shards", 1 / 60),
        "compute_and_training": (
            f"Training; in full every time: {full:.0f} hours",
            "hours; pale: the first",
            1 / 3600,
        ),
        "mean_depth": ("What shards serve with", "slices, mean", 1.0),
    }
    all_axes = panels(figure, 2, 2, height=6.4)
    for axes, (what, (text, unit, scale)) in zip(all_axes, told.items(), strict=True):
        for number, (name, found) in enumerate(systems.items()):
            places = [place + 0.8 * (number + 0.5) / len(systems) - 0.4 for place in range(len(policies))]
            layers = (
                {"compute_and_training": PALE, "compute": SOLID} if what == "compute_and_training" else {what: SOLID}
            )
            for part, opacity in layers.items():
                axes.bar(
                    places,
                    [scale * found[policy][part] for policy in policies],
                    width=0.72 / len(systems),
                    color=LOOKS["SISA" if name == "sisa" else name.removeprefix("s3t, ")].colour,
                    alpha=opacity,
                    label=("SISA" if name == "sisa" else name) if opacity == SOLID else None,
                )
        axes.set_xticks(range(len(policies)), [policy.replace("-", "-\n", 1) for policy in policies])
        axes.grid(visible=False, axis="x")
        title(axes, text, x="", y=unit)
    legend_below(figure, all_axes[0], columns=len(systems))
