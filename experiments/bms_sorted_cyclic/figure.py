"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import column, curve, legend_below, panels, title

NAMES = {"bms": "BMS (paper)", "sorted-cyclic": "sorted cyclic", "survival": "survival (ours)"}


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Four panels: total score and depth, over slices with B = L and over budgets, as ratios to sorted rotation's."""
    config, summary = results["config"], results["summary"]
    places = panels(figure, 2, 2, height=6.2, sharey="row")
    score, score_budget, depth, depth_budget = places
    for axes, what, lines, x in (
        (score, "score", summary["over_slices"], "slices"),
        (score_budget, "score", summary["over_budgets"], "budget"),
        (depth, "depth", summary["over_slices"], "slices"),
        (depth_budget, "depth", summary["over_budgets"], "budget"),
    ):
        across = column(lines, x)
        curve(axes, across, [1.0] * len(across), "sorted-cyclic", NAMES["sorted-cyclic"], marker="")
        for name in ("bms", "survival"):
            values, spread = column(lines, f"{name}_{what}_ratio"), column(lines, f"{name}_{what}_ratio_std")
            curve(
                axes,
                across,
                values,
                name,
                NAMES[name],
                low=[value - std for value, std in zip(values, spread, strict=True)],
                high=[value + std for value, std in zip(values, spread, strict=True)],
            )
        axes.set_xlim(0, across[-1] * 1.03)
    t, horizon = config["deletions"], ", ".join(map(str, config["horizon"]))
    title(score, "The paper's score, B = L", x="slices L", y=f"total score (t = {t})\nover sorted cyclic's")
    title(score_budget, f"The paper's score, L = {config['slices']}", x="budget B (sequences)", y="")
    title(depth, "What is served, B = L", x="slices L", y=f"expected depth (r = {horizon})\nover sorted cyclic's")
    title(depth_budget, f"What is served, L = {config['slices']}", x="budget B (sequences)", y="")
    legend_below(figure, score, columns=3)
