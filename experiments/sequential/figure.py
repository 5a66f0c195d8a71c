"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import curve, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: accuracy over the slices trained on, with a band from the lowest to the highest seed."""
    (axes,) = panels(figure, 1, 1, height=3.8)
    looks = {"s3t": "survival", "sequential": "SISA"}
    for system, look in looks.items():
        runs = [[100 * value for value in row["accuracy"]] for row in results["rows"] if row["system"] == system]
        each = list(zip(*runs, strict=True))
        found = results["summary"][system]
        curve(
            axes,
            range(1, len(each) + 1),
            [100 * value for value in found["accuracy"]],
            look,
            f"{system}: {found['parameters']:,} parameters a stage",
            low=[min(values) for values in each],
            high=[max(values) for values in each],
        )
    axes.set_xticks(range(1, results["config"]["slices"] + 1))
    axes.legend(loc="lower right")
    title(axes, "Trained on one slice more at a time", x="slices", y="test accuracy (%)")
