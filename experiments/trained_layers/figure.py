"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import curve, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel a model: the time of a step over trained layers, with the trunk cache and without."""
    models = results["config"]["models"]
    for axes, name in zip(panels(figure, 1, len(models), height=3.7), models, strict=True):
        for cached, look in ((False, "SISA"), (True, "survival")):
            rows = [row for row in results["rows"] if (row["model"], row["cached"]) == (name, cached)]
            label = "from the cached states below" if cached else "the whole pass forward"
            layers, times = [row["layers"] for row in rows], [row["ms_a_step"] for row in rows]
            curve(axes, layers, times, look, label, marker="o")
        axes.set_xlim(0)
        axes.set_ylim(0)
        axes.legend(loc="upper left")
        title(axes, name, x="trained layers", y="milliseconds a step")
