"""The picture of the results."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from experiments.drawing import panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: accuracy over deletions, a curve a weight."""
    (axes,) = panels(figure, 1, 1, height=4.2)
    config, rows = results["config"], results["rows"]
    grid = list(range(0, config["until"] + 1, config["step"]))
    colours = matplotlib.colormaps["viridis"]
    for number, row in enumerate(rows):
        lasting = [place for place, alive in enumerate(row["alive"]) if alive >= 0.5]
        axes.plot(
            [grid[place] for place in lasting],
            [100 * row["accuracy"][place] for place in lasting],
            color=colours(0.9 * number / max(1, len(rows) - 1)),
            label=f"{row['weight']:g}",
        )
    axes.legend(title="weight of SISA's logits", ncols=2)
    title(axes, "ProtoSISA, while half of the systems answer", x="deletions", y="test accuracy (%)")
