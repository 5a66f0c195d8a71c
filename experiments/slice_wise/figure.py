"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import LOOKS, legend_below, panels, title
from experiments.slice_wise.experiment import AS_MANY


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: for every task a bar of each system, a point a seed, and a line at what a guess gives."""
    (axes,) = panels(figure, 1, 1, height=4.2)
    tasks = results["summary"]["tasks"]
    looks = {
        "slice-wise": (LOOKS["survival"].colour, 0.75, "slice by slice"),
        "full": (LOOKS["full"].colour, 0.75, "full, as many epochs"),
        AS_MANY: (LOOKS["full"].colour, 0.4, AS_MANY),
    }
    shown = {system: look for system, look in looks.items() if system in next(iter(tasks.values()))}
    for number, (system, (colour, alpha, label)) in enumerate(shown.items()):
        places = [place + 0.27 * (number - 1) for place in range(len(tasks))]
        heights = [100 * found[system] for found in tasks.values()]
        axes.bar(places, heights, width=0.25, color=colour, alpha=alpha, label=label)
        for place, name in zip(places, tasks, strict=True):
            scores = [
                100 * (row["score"] or 0.0) for row in results["rows"] if (row["task"], row["system"]) == (name, system)
            ]
            axes.plot([place] * len(scores), scores, linestyle="none", marker=".", color="#202020", markersize=3.5)
    guesses = {row["task"]: 100 * row["guess"] for row in results["rows"]}
    for place, name in enumerate(tasks):
        label = "a guess" if place == 0 else "_"
        axes.hlines(
            guesses[name], place - 0.42, place + 0.42, color="#202020", linestyle=":", linewidth=1.2, label=label
        )
    axes.set_xticks(range(len(tasks)), [f"{name}\n{found['metric']}" for name, found in tasks.items()])
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]), top=100)
    axes.grid(visible=False, axis="x")
    legend_below(figure, axes, columns=4)
    title(axes, "Trained slice by slice, and at once", x="", y="points (accuracy or correlation, times 100)")
