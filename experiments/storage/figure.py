"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.drawing import beside, column, curve, panels, title


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """One panel: rate and first failure against storage, a point a budget."""
    (axes,) = panels(figure, 1, 1, height=4.6)
    config = results["config"]
    rows = [row for row in results["rows"] if row["paper_gb"] is not None]
    rates = column(rows, "rate")
    label = "a whole adapter and a head a stage, exact rate"
    curve(axes, column(rows, "gb_whole_adapter_a_stage"), rates, "SISA", label, marker="s", markerfacecolor="white")
    curve(axes, column(rows, "gb_survival"), rates, "rate")
    curve(axes, column(rows, "gb_survival"), column(rows, "first"), "first")
    curve(axes, column(rows, "paper_gb"), column(rows, "paper_rate"), "paper", "the paper's table", markersize=8)
    for row in rows:
        text = f"B = {row['budget']}" if row is rows[0] else str(row["budget"])
        offset, side = ((7, -4), "left") if row is rows[0] else ((-4, 6), "right")
        _small(axes, row["gb_survival"], row["rate"], text, offset, side)
        _small(axes, row["paper_gb"], min(row["rate"], row["paper_rate"]), text, (2, -13), "center")
    last = rows[-1]
    where = last["gb_survival"]
    beside(axes, where, last["rate"], "what s3t stores, a block and a head a stage:\nevery shard dead", "rate")
    beside(axes, where, last["first"], "the same: first shard dead", "first")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.42))
    axes.set_xlim(0)
    axes.set_ylim(0)
    title(
        axes,
        f"ViT-Large, LoRA rank {config['rank']}, m = {config['shards']}, L = {config['slices']}",
        x="storage of all shards (GB)",
        y="deletions (expected)",
    )


def _small(axes: Axes, x: float, y: float, text: str, offset: tuple[int, int], side: str) -> None:
    axes.annotate(
        text, (x, y), xytext=offset, textcoords="offset points", ha=side, va="center", fontsize=8.5, color="#606060"
    )
