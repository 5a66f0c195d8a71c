"""The picture of the results."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from experiments.drawing import legend_below, panels

LOOKS = {
    "full": ("#009E73", "o"),
    "sisa": ("#767676", "s"),
    "protosisa": ("#CC79A7", "D"),
    "s3t": ("#D55E00", "^"),
    "ridge": ("#0072B2", "*"),
}
"""Colour and marker by method; with a ridge head the marker is filled."""
FORMS = {"merged": "X", "chains": "v"}
"""Markers of other forms of a method."""
COLUMNS = 5


def draw(figure: Figure, results: dict[str, Any]) -> None:
    """A panel a task: score after 20 % deletions and their repair, against the CPU seconds of a year."""
    tasks = results["summary"]["tasks"]
    rows = -(-len(tasks) // COLUMNS)
    axes = panels(figure, rows, COLUMNS, height=2.2 * rows + 0.9)
    for own, (name, found) in zip(axes, tasks.items(), strict=False):
        for system, measured in found["systems"].items():
            method, _, more = system.partition(", ")
            colour, marker = LOOKS[method]
            form, _, head = more.partition(", ")
            filled = method == "ridge" or form == "merged" or "ridge head" in (form, head)
            own.plot(
                measured["year_seconds"],
                100 * measured["scores"][-1],
                linestyle="none",
                marker=FORMS.get(form, marker),
                color=colour,
                markerfacecolor=colour if filled else "white",
                markersize=9 if marker == "*" else 6,
                label=system,
            )
        own.set_xscale("log")
        own.margins(x=0.15)
        own.xaxis.set_minor_formatter(NullFormatter())
        own.set_title(name, pad=6)
        own.set_ylabel(f"{found['metric'].replace('_', ' ')}, x 100")
        own.set_xlabel("CPU s a year")
    for own in axes[len(tasks) :]:
        own.set_visible(False)
    legend_below(figure, axes[0], columns=4)
