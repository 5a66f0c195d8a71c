"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import column, curve, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Two panels over the number of orders: all shards together, and one alone."""
    config, rows = results["config"], results["rows"]
    told = {"accuracy": f"All {config['shards']} shards together", "one_shard": "One shard alone"}
    for axes, (what, text) in zip(panels(figure, 1, 2, height=3.6), told.items(), strict=True):
        mean, spread = ([100 * value for value in column(rows, name)] for name in (what, f"{what}_spread"))
        ends = [[value + sign * apart for value, apart in zip(mean, spread, strict=True)] for sign in (-1, 1)]
        curve(axes, column(rows, "orders"), mean, "survival", low=ends[0], high=ends[1])
        title(axes, text, x="orders that answer together", y="test accuracy (%)")
