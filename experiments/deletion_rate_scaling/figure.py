"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import column, curve, legend_below, panels, points, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Three panels: deletion rates against budget, shards and slices."""
    first, second, third = panels(figure, 1, 3, height=3.6)
    config, rows = results["config"], results["rows"]
    shards, slices, few = config["shards"], config["slices"], config["small_budget"]

    chosen = [row for row in rows if row["panel"] == "budget"]
    _curves(first, chosen, "budget", "rate", None)
    title(
        first, f"m = {shards}, L = {slices}", x="budget B (sequences a shard)", y="deletions until every shard is dead"
    )
    for axes, panel, fixed, name in (
        (second, "shards", f"L = {slices}", "shards m"),
        (third, "slices", f"m = {shards}", "slices L (a shard)"),
    ):
        chosen = [row for row in rows if row["panel"] == panel]
        _curves(
            axes,
            [row for row in chosen if row["budget"] == row["slices"]],
            panel,
            "rate",
            "S3T, B = L (left panel: B varies)",
        )
        _curves(axes, [row for row in chosen if row["budget"] == few], panel, "few", f"S3T, B = {few}")
        title(axes, fixed, x=name, y="")
    second.plot(
        [], [], linestyle="none", marker="o", markerfacecolor="white", markeredgecolor="#404040", label="simulated"
    )
    curve(second, [], [], "SISA", "SISA")
    for axes in (first, second, third):
        axes.set_xlim(0)
        axes.set_ylim(0)
    legend_below(figure, second, columns=4)


def _curves(axes: Any, rows: list[dict[str, Any]], x: str, name: str, label: str | None) -> None:
    places = column(rows, x)
    curve(axes, places, column(rows, "rate"), name, label, marker="")
    points(axes, places, column(rows, "simulated_rate"), name)
    curve(axes, places, column(rows, "sisa"), "SISA")
