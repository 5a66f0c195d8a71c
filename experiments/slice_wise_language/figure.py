"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import LOOKS, legend_below, panels, title
from experiments.slice_wise_language.experiment import BASE, FULL, OURS


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: perplexity by trained slices, a point a seed; lines at full training and at the base."""
    (axes,) = panels(figure, 1, 1, height=4.2)
    found = results["summary"]
    depths = range(1, len(found["per_depth"]) + 1)
    axes.plot(depths, found["per_depth"], color=LOOKS["survival"].colour, marker="o", label="slice by slice")
    for row in results["rows"]:
        if row["system"] == OURS:
            axes.plot(depths, row["per_depth"], linestyle="none", marker=".", color="#202020", markersize=3.5)
    for system, look, label in ((FULL, LOOKS["full"], "full, as many epochs"), (BASE, LOOKS["bound"], "not trained")):
        axes.axhline(found["perplexity"][system], color=look.colour, linestyle=look.dashes, label=label)
    axes.set_xticks(list(depths))
    legend_below(figure, axes, columns=3)
    title(axes, "Trained slice by slice, and at once", x="slices trained", y="perplexity of held-out outputs")
