"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import LOOKS, legend_below, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: for every task a bar of each system, a point a seed."""
    (axes,) = panels(figure, 1, 1, height=4.2)
    tasks = results["summary"]["tasks"]
    looks = {"slice-wise": "survival", "full": "full"}
    for number, (system, look) in enumerate(looks.items()):
        left = [place + 0.38 * (number - 0.5) for place in range(len(tasks))]
        colour = LOOKS[look].colour
        axes.bar(
            left,
            [100 * found[system] for found in tasks.values()],
            width=0.34,
            color=colour,
            alpha=0.75,
            label=f"{system} training",
        )
        for place, name in zip(left, tasks, strict=True):
            scores = [
                100 * (row["score"] or 0.0) for row in results["rows"] if (row["task"], row["system"]) == (name, system)
            ]
            axes.plot([place] * len(scores), scores, linestyle="none", marker=".", color="#202020", markersize=4)
    axes.set_xticks(range(len(tasks)), [f"{name}\n{found['metric']}" for name, found in tasks.items()])
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]), top=100)
    axes.grid(visible=False, axis="x")
    legend_below(figure, axes, columns=2)
    title(axes, "Trained slice by slice, and at once", x="", y="points (accuracy or correlation, times 100)")
