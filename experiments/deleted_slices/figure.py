"""The picture of the results."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from experiments.drawing import legend_below, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: the relative drop over deleted slices, a curve a task."""
    (axes,) = panels(figure, 1, 1, height=4.2)
    colours, marks = matplotlib.colormaps["tab10"], "osD^vXP*"
    for number, row in enumerate(results["rows"]):
        axes.plot(
            range(row["slices"]),
            [-100 * (drop or 0.0) for drop in row["relative_drop"]],
            color=colours(number),
            marker=marks[number % len(marks)],
            label=f"{row['task']} ({row['metric']})",
        )
    axes.set_xticks(range(max(row["slices"] for row in results["rows"])))
    legend_below(figure, axes, columns=4)
    title(axes, "What is lost as slices are deleted", x="deleted slices", y="relative change (%)")
