"""What more training buys: cost against repairs, for the systems that a plan has weighed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from s3t.drawing.figure import BLUE, GREY, INK, ORANGE, drawn
from s3t.planning import Candidate, Plan

_LABELS = 9
"""Systems that are named, at most."""


def draw_plan(found: Plan, path: Path) -> None:
    """Draw the frontier of a plan, its budget and its proposal.

    Args:
        found: what was weighed.
        path: ends in one of `SUFFIXES`.

    Raises:
        StorageError: the disk refused.
    """
    demand, best = found.demand, found.proposal
    with drawn(path, height=4.8) as figure:
        axes = figure.add_subplot()
        costs = [candidate.cost for candidate in found.frontier]
        repairs = [candidate.repairs for candidate in found.frontier]
        axes.plot(costs, repairs, color=BLUE, marker="o", markersize=4, linewidth=1, zorder=2)
        for candidate in _named(found):
            axes.annotate(
                _name(candidate),
                (candidate.cost, candidate.repairs),
                xytext=(5, 5),
                textcoords="offset points",
                color=INK,
                fontsize=8,
            )
        for what, cost in (("budget ", demand.budget), ("training anew each time ", 1 + demand.deletions)):
            axes.axvline(cost, color=GREY, linestyle="--", linewidth=1, zorder=1)
            axes.annotate(what, (cost, 1), xycoords=("data", "axes fraction"), ha="right", va="top", color=GREY)
        if best is not None:
            axes.plot([best.cost], [best.repairs], marker="*", markersize=15, color=ORANGE, zorder=3)
            axes.annotate(
                f"proposed: {_name(best)}",
                (best.cost, best.repairs),
                xytext=(-10, -16),
                textcoords="offset points",
                ha="right",
                color=ORANGE,
                fontweight="bold",
            )
        _frame(axes, found)


def _frame(axes: Any, found: Plan) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    demand = found.demand
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    axes.margins(x=0.12, y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("training and repairs, full trainings")
    axes.set_ylabel(f"repairs of a shard in {demand.months:g} months")
    axes.set_title(
        f"{demand.deletions} deletions in {demand.months:g} months; "
        f"a shard keeps at least {demand.share:.0%} of all records\n"
        "m shards / L slices / B sequences; none is both cheaper and repaired less",
        loc="left",
        fontsize=10,
    )


def _named(found: Plan) -> Sequence[Candidate]:
    """Evenly spread over the frontier, without the proposal, which has a name of its own."""
    frontier = found.others
    if len(frontier) <= _LABELS:
        return frontier
    return [frontier[round(step * (len(frontier) - 1) / (_LABELS - 1))] for step in range(_LABELS)]


def _name(candidate: Candidate) -> str:
    return f"{candidate.shards} / {candidate.slices} / {candidate.budget}"
