"""The picture of the results."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from experiments.drawing import LOOKS, legend_below, panels, title
from experiments.repair_policies.experiment import FOREST, name_of
from experiments.replay import counted

MARKS = "xsD^vo"
GROWN = "P"
"""Mark of every policy of repair as needed."""
NEVER = "manual"
"""It trains nothing, and would take most of the left panel."""


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Accuracy against training, a curve a system and a mark a policy; accuracy over requests, a curve a policy."""
    left, right = panels(figure, 1, 2, height=4.4)
    config, systems = results["config"], results["summary"]["systems"]
    for name, policies in systems.items():
        names = [policy for policy in policies if policy != NEVER]
        rows = [policies[policy] for policy in names]
        colour = LOOKS[{"sisa": "SISA", FOREST: "bms"}.get(name, name.removeprefix("s3t, "))].colour
        across = [row["trainings"] for row in rows]
        up = [100 * row["accuracy"] for row in rows]
        left.plot(across, up, color=colour, linewidth=0.8, label="SISA" if name == "sisa" else name)
        marks = [GROWN if name == FOREST else MARKS[config["policies"].index(policy)] for policy in names]
        for x, y, mark in zip(across, up, marks, strict=True):
            left.plot([x], [y], color=colour, marker=mark, linestyle="none")
    left.set_xscale("log")
    title(left, "What repair buys", x="training after requests (trainings of one order)", y="accuracy (%)")
    shown = [name for name in systems if name != FOREST][-2]
    colours = matplotlib.colormaps["viridis"]
    for number, policy in enumerate(config["policies"]):
        row = next(row for row in results["rows"] if row.get("policy") == policy and name_of(row) == shown)
        shade = colours(0.9 * number / max(len(config["policies"]) - 1, 1))
        grid = range(config["step"], config["requests"] + 1, config["step"])
        right.plot(
            grid,
            [100 * value for value in counted(row)],
            color=shade,
            marker=MARKS[number % len(MARKS)],
            markevery=8,
            label=policy,
        )
    title(right, f"Over requests: {shown}", x="requests", y="accuracy (%), dead as 0")
    left.legend(loc="lower right")
    legend_below(figure, right, columns=len(config["policies"]) // 2)
