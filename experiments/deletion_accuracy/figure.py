"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import curve, legend_below, panels, title

MIDDLE = 0.5
"""The weight of ProtoSISA that is drawn."""


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Two panels over deletions: accuracy of the systems that still answer, and how many do."""
    left, right = panels(figure, 1, 2, height=4.4)
    config, largest = results["config"], max(results["config"]["budgets"])
    grid = list(range(0, config["until"] + 1, config["step"]))
    for row in results["rows"]:
        if row["system"] == "full" or row.get("weight", MIDDLE) != MIDDLE:
            continue
        look, label, dashes = _look(row, largest)
        lasting = [number for number, alive in enumerate(row["alive"]) if alive >= 0.5]
        places = [grid[number] for number in lasting]
        accuracy = [100 * row["accuracy"][number] for number in lasting]
        curve(left, places, accuracy, look, label, marker="", **dashes)
        curve(right, grid, [100 * alive for alive in row["alive"]], look, marker="", **dashes)
    full = {int(count): row for count, row in results["summary"]["full"].items()}
    low, high = ([100 * (row["accuracy"] + side * row["spread"]) for row in full.values()] for side in (-1, 1))
    accuracy = [100 * row["accuracy"] for row in full.values()]
    curve(left, list(full), accuracy, "full", "retrained in full every time", low=low, high=high)
    title(left, "Accuracy, while half of the systems answer", x="deletions", y="test accuracy (%)")
    title(right, "Systems that answer at all", x="deletions", y="share of deletion orders (%)")
    right.set_ylim(0, 103)
    legend_below(figure, left, columns=3)


def _look(row: dict[str, Any], largest: int) -> tuple[str, str, dict[str, Any]]:
    if row["system"] != "s3t":
        look = "SISA" if row["system"] == "sisa" else "protosisa"
        return look, {"sisa": "SISA", "protosisa": f"ProtoSISA, weight {MIDDLE:g}"}[row["system"]], {}
    budget = row["budget"]
    if budget == largest:
        return "largest budget", f"s3t, all {budget} orders", {}
    if budget == 1:
        return "few", "s3t, one order", {"linestyle": ":"}
    return row["selector"], f"s3t, {budget} orders, {row['selector']}", {"linestyle": "-" if budget > 2 else "--"}
