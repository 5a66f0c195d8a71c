"""The picture of how the cost grows: measured points, and the arithmetic's curve through them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from s3t.drawing import BLUE, GREEN, INK, ORANGE, drawn

PANELS = (
    ("training", "layers", "layers N"),
    ("training", "slices", "slices L"),
    ("training", "budget", "orders B"),
    ("training", "shards", "shards m, the same records"),
    ("prediction", "shards", "shards m"),
    ("prediction", "depth", "depth"),
)
BASE = {"layers": 12, "slices": 4, "budget": 2, "shards": 1}


def draw(found: dict[str, Any], path: Path) -> None:
    """Draw the results of `benchmarks.scaling`.

    Args:
        found: its document.
        path: where to; a file that is there is replaced.
    """
    with drawn(path, height=5.2) as figure:
        axes = figure.subplots(2, 3).flat
        for axis, (part, name, label) in zip(axes, PANELS, strict=True):
            for cached, colour in ((True, BLUE), (False, ORANGE)):
                rows = panel_rows(found[part]["points"], name, cached=cached)
                colour = GREEN if part == "prediction" else colour
                what = "a prediction" if part == "prediction" else "trunk cache" if cached else "no trunk cache"
                values = [row[name] for row in rows]
                axis.plot(values, [row["seconds"] for row in rows], "o", color=colour, markersize=4, label=what)
                axis.plot(values, [row["model_seconds"] for row in rows], "-", color=colour, linewidth=1.2)
            axis.set(xlabel=label, ylabel=f"seconds of {part}", ylim=(0, None))
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(colors=INK)
            axis.xaxis.get_major_locator().set_params(integer=True)
        figure.axes[0].legend(frameon=False, title="points: measured\nlines: arithmetic")


def panel_rows(points: list[dict[str, Any]], name: str, *, cached: bool) -> list[dict[str, Any]]:
    """The points in which one number varies and the others are the base's, in that number's order."""
    if name == "depth":
        deepest = max(point["slices"] for point in points)
        rows = [point for point in points if point["slices"] == deepest]
    else:
        fixed = [other for other in BASE if other != name]
        rows = [point for point in points if all(point[other] == BASE[other] for other in fixed)]
    return sorted((row for row in rows if row["cached"] is cached), key=lambda row: row[name])
