"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from experiments.drawing import beside, column, curve, panels, points, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: rates against budget."""
    (axes,) = panels(figure, 1, 1, height=4.6)
    config, rows = results["config"], results["rows"]
    budgets = column(rows, "budget")
    mean, spread = column(rows, "simulated_rate"), column(rows, "simulated_rate_std")
    curve(axes, budgets, column(rows, "bound"), "rate", marker="")
    axes.fill_between(
        budgets,
        [value - std for value, std in zip(mean, spread, strict=True)],
        [value + std for value, std in zip(mean, spread, strict=True)],
        color="#0072B2",
        alpha=0.13,
        linewidth=0,
        label="simulated, ± one standard deviation of a system",
    )
    points(axes, budgets, mean, "rate", f"simulated, mean of {config['trials']:,} systems")
    curve(axes, budgets, column(rows, "logarithm"), "logarithm")
    curve(axes, budgets, column(rows, "first"), "first", marker="")
    points(axes, budgets, column(rows, "simulated_first"), "first")
    curve(axes, budgets, column(rows, "sisa"), "SISA")
    end = budgets[-1]
    for number, name, text, dy in (
        ("bound", "rate", "S3T,\nevery shard dead:\nmL·H(m·min(B, L))", 14),
        ("logarithm", "logarithm", "the paper's form:\nmL·log(m·min(B, L))", -10),
        ("first", "first", "S3T,\nfirst shard dead", 0),
        ("sisa", "SISA", "SISA,\nevery shard dead", 0),
    ):
        beside(axes, end, rows[-1][number], text, name, dx=10, dy=dy)
    axes.axvline(config["slices"], color="#b0b0b0", linewidth=1, linestyle=":")
    axes.annotate(
        "B = L", (config["slices"], 60), xytext=(4, 0), textcoords="offset points", color="#606060", fontsize=9
    )
    axes.set_xlim(0, end + 1)
    axes.set_ylim(0)
    title(
        axes,
        f"How many deletions a system takes (m = {config['shards']} shards, L = {config['slices']} slices)",
        x="budget B (sequences a shard)",
        y="deletions",
    )
    axes.legend(loc="upper left", bbox_to_anchor=(0.02, 1.0))
