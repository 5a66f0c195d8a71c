"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import column, curve, legend_below, panels, title

NAMES = {"bms": "BMS (paper)", "random": "random", "survival": "survival (ours)"}


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """Three panels: distance, total score and depth against budget."""
    config, lines = results["config"], results["summary"]["curves"]
    places = panels(figure, 1, 3, height=3.8)
    for axes, what in zip(places, ("distance", "score", "depth"), strict=True):
        chosen = lines if what != "distance" else [line for line in lines if line["budget"] > 1]
        for name, label in NAMES.items():
            values, spread = column(chosen, f"{name}_{what}"), column(chosen, f"{name}_{what}_std")
            curve(
                axes,
                column(chosen, "budget"),
                values,
                name,
                label,
                low=[value - std for value, std in zip(values, spread, strict=True)],
                high=[value + std for value, std in zip(values, spread, strict=True)],
            )
        axes.set_xlim(0, lines[-1]["budget"] + 0.5)
        axes.set_xticks(range(0, config["slices"] + 1, max(1, config["slices"] // 4)))
    distance, score, depth = places
    score.set_ylim(0)
    horizon = ", ".join(map(str, config["horizon"]))
    x = "budget B (sequences)"
    title(distance, "How far apart", x=x, y="mean Hamming distance (positions)")
    title(score, "The paper's score", x=x, y="total score of the B orders")
    title(depth, "What is served", x=x, y="expected depth (slices)")
    figure.suptitle(
        f"L = {config['slices']}; mean ± standard deviation over {config['priors']} Dirichlet priors; "
        f"score: t = {config['deletions']}; depth: mean over r = {horizon}",
        fontsize=10,
    )
    legend_below(figure, distance, columns=3)
