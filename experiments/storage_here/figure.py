"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import curve, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: megabytes over the budget, and SISA's."""
    (axes,) = panels(figure, 1, 1, height=3.6)
    rows = [row for row in results["rows"] if row["system"] == "s3t"]
    sizes = [row["bytes"] / 1e6 for row in rows]
    curve(axes, [row["budget"] for row in rows], sizes, "survival", "s3t: a block and a head a stage")
    sisa = next(row["bytes"] / 1e6 for row in results["rows"] if row["system"] == "sisa")
    curve(axes, [1], [sisa], "SISA", "SISA: an adapter of all layers and a head a stage", marker="s")
    axes.legend(loc="upper left")
    axes.set_ylim(0)
    title(axes, "On the disk", x="orders a shard (B)", y="megabytes")
