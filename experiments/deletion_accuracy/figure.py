"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import curve, legend_below, panels, title
from experiments.replay import counted


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Three panels over deletions: accuracy where SISA answers, how many systems do, and both in one."""
    axes = panels(figure, 1, 3, height=4.2)
    same, share, served = axes
    config = results["config"]
    drawn = max(config["sisa_weights"])
    grid = list(range(0, config["until"] + 1, config["step"]))
    rows = [row for row in results["rows"] if row["system"] != "full" and row.get("weight", drawn) == drawn]
    alive = next(row["alive"] for row in rows if row["system"] == "sisa")
    lasting = [number for number, part in enumerate(alive) if part >= 0.5]
    for row in rows:
        look, label, dashes = _look(row, rows)
        values = [100 * row["accuracy_where_sisa_answers"][number] for number in lasting]
        curve(same, [grid[number] for number in lasting], values, look, label, marker="", **dashes)
        curve(share, grid, [100 * part for part in row["alive"]], look, marker="", **dashes)
        curve(served, grid, [100 * value for value in counted(row)], look, marker="", **dashes)
    full = {int(count): row for count, row in results["summary"]["full"].items()}
    low, high = ([100 * (row["accuracy"] + side * row["spread"]) for row in full.values()] for side in (-1, 1))
    accuracy = [100 * row["accuracy"] for row in full.values()]
    curve(served, list(full), accuracy, "full", "retrained in full every time (band: seeds)", low=low, high=high)
    title(same, "Where SISA answers", x="deletions", y="test accuracy (%)")
    title(share, "Systems that answer", x="deletions", y="share of deletion orders (%)")
    title(served, "Dead counted as 0", x="deletions", y="test accuracy (%)")
    for one in (share, served):
        one.set_ylim(0)
    legend_below(figure, same, served, columns=3)


def _look(row: dict[str, Any], rows: list[dict[str, Any]]) -> tuple[str, str, dict[str, Any]]:
    if row["system"] == "sisa":
        return "SISA", "SISA", {}
    if row["system"] == "protosisa":
        return "protosisa", f"ProtoSISA, weight {row['weight']:g}", {}
    budget = row["budget"]
    told = f"s3t, {'one order' if budget == 1 else f'{budget} orders'}"
    both = sum(row["budget"] == budget for row in rows if row["system"] == "s3t") > 1
    ours = both and row["selector"] == "survival"
    return f"B={budget}", f"{told}, {row['selector']}" if both else told, {"linestyle": "-."} if ours else {}
