"""Pictures of orders, systems and confusions, by matplotlib, which is loaded when something is drawn."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from s3t.core import Order
from s3t.errors import InputError
from s3t.extras import how_to_install
from s3t.files import writing_problems
from s3t.orders.setting import Floats, Ints
from s3t.store.disk import storage_errors, write_durably

if TYPE_CHECKING:
    from s3t.comparison import Comparison

SUFFIXES = (".png", ".svg", ".pdf")

# Okabe and Ito's colours, which people with any colour vision tell apart.
GREEN, BLUE, ORANGE = "#009e73", "#0072b2", "#d55e00"
INK, GREY = "#222222", "#9a9a9a"
SCALE = "YlGnBu"
"""Light to dark: the same order for colour-blind readers, and in grey."""

WIDTH = 8.0
"""Inches; at 100 dots an inch, a picture 800 pixels wide."""
DOTS = 200
BANDS = ((0.05, 0.95, 0.18), (0.25, 0.75, 0.35))
"""Bands of the picture of depths: lower quantile, upper quantile, and opacity."""
CELL, LARGEST = 0.18, 1.0
"""Inches of a confusion's cell: at least, so that its label can be read; at most."""
SMALL_PICTURE, NARROWEST = 5.0, 5.5
"""Inches that the cells of a few classes fill; and of the whole picture's width, which its title needs."""
MOST_COUNTED = 120
"""Classes whose cells have their counts written in them."""
MOST_NAMED = 32
"""Orders, and slices, up to which the picture of orders names the slice in every cell."""
_STYLE = {"font.size": 9, "svg.fonttype": "none", "pdf.fonttype": 42, "svg.hashsalt": "s3t"}
# Without a date, the same picture has the same bytes.
_METADATA = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


def check_picture(path: Path) -> None:
    """Checks that a picture can be drawn and written, before any work is done."""
    problems = writing_problems(path, SUFFIXES)
    if importlib.util.find_spec("matplotlib") is None:
        problems.append(f"pictures need matplotlib, which is not installed; install it with: {how_to_install('plots')}")
    if problems:
        raise InputError(str(path), problems)


@contextmanager
def drawn(path: Path, *, height: float, width: float = WIDTH) -> Iterator[Any]:
    """A figure to draw on, which is written when all went well.

    The path ends in one of `SUFFIXES`; a file that is there is replaced. Height and width are in inches.
    """
    import matplotlib
    from matplotlib.figure import Figure

    suffix = path.suffix.lower()
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure

        def write(part: Path) -> None:
            figure.savefig(part, format=suffix[1:], dpi=DOTS, metadata=_METADATA.get(suffix))

        with storage_errors(f"writing {path}"):
            write_durably(path, write, tmp=path.parent, mode=None)


def draw_depths(
    deletions: Sequence[int], retained: Floats, path: Path, *, title: str, unrepaired: Floats | None = None
) -> None:
    """Draw mean and bands of the depth of a simulated system's shards after R numbers of deletions, ascending.

    `retained`, R x (L + 1), is the share of shards that are at least k slices deep; `unrepaired`, where there are
    repairs, R mean depths of the same system without them. Without repairs the axis of deletions is logarithmic.
    """
    from matplotlib.ticker import MaxNLocator

    slices = retained.shape[1] - 1
    with drawn(path, height=3.6) as figure:
        axes = figure.add_subplot()
        for low, high, opacity in BANDS:
            edges = [_quantile(retained, share) for share in (low, high)]
            label = f"{low:.0%} to {high:.0%} of the shards"
            axes.fill_between(deletions, *edges, step="post", color=GREEN, alpha=opacity, linewidth=0, label=label)
        axes.plot(deletions, retained[:, 1:].sum(axis=1), color=GREEN, linewidth=2, label="mean")
        if unrepaired is None:
            axes.set_xscale("log")  # depth is lost early, and the last shard dies late
        else:
            axes.plot(deletions, unrepaired, color=INK, linewidth=1.2, linestyle=":", label="never repaired")
        axes.set_xlim(deletions[0], deletions[-1])
        axes.set_ylim(0, slices * 1.02)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlabel("deletions in the system")
        axes.set_ylabel(f"depth of a shard (of {slices})")
        axes.set_title(title, fontsize=10, color=INK, pad=24)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)


def _quantile(retained: Floats, share: float) -> Ints:
    """R depths: the smallest k that at least this share of the shards does not exceed."""
    beyond = np.concatenate([retained[:, 1:], np.zeros((len(retained), 1))], axis=1)  # P[depth > k]
    return np.asarray(np.argmax(beyond <= 1 - share + 1e-12, axis=1))


def draw_confusion(confusion: Ints, classes: Sequence[str], path: Path, *, title: str) -> None:
    """Draw a confusion matrix: a row a right label, a column an answer, coloured by the share of the row.

    `confusion` are C x C records.
    """
    check_picture(path)
    count = len(classes)
    cell = float(np.clip(SMALL_PICTURE / count, CELL, LARGEST))
    margin = 0.9 + 0.075 * max(map(len, classes))  # the longest label beside the cells, and the axis' name
    side = cell * count + margin
    totals = confusion.sum(axis=1, keepdims=True)
    shares = np.divide(confusion, totals, out=np.zeros(confusion.shape), where=totals > 0)
    with drawn(path, height=side + 0.4, width=max(NARROWEST, side + 0.9)) as figure:
        axes = figure.subplots()
        image = axes.imshow(shares, cmap=SCALE, vmin=0, vmax=1, aspect="equal")
        size = min(9.0, cell * 72 * 0.55)
        axes.set_xticks(range(count), classes, rotation=90, fontsize=size)
        axes.set_yticks(range(count), classes, fontsize=size)
        axes.set_xticks(np.arange(count + 1) - 0.5, minor=True)
        axes.set_yticks(np.arange(count + 1) - 0.5, minor=True)
        axes.grid(which="minor", color="#e8e8e8", linewidth=0.4)
        axes.tick_params(which="both", length=0)
        for spine in axes.spines.values():
            spine.set_visible(False)
        axes.set_xlabel("answer")
        axes.set_ylabel("label")
        axes.set_title(title)
        if count <= MOST_COUNTED:
            for row, column in zip(*np.nonzero(confusion), strict=True):
                text = str(confusion[row, column])  # a digit is as wide as 0.6 of its height
                size = min(9.0, cell * 72 * min(0.55, 1.3 / len(text)))
                colour = "white" if shares[row, column] > 0.55 else INK
                axes.text(column, row, text, ha="center", va="center", color=colour, fontsize=size)
        bar = figure.colorbar(image, ax=axes, fraction=0.03, pad=0.01, shrink=min(1.0, 4 / side))
        bar.set_label("share of the label's records")
        bar.outline.set_visible(False)


def draw_orders(orders: Sequence[Order], path: Path, *, title: str, prior: Sequence[float] | None = None) -> None:
    """Draw the orders of a shard, sorted: a row an order, a column a position.

    A `prior`, L probabilities, colours the slices; None: they are all alike.
    """
    from matplotlib.ticker import MaxNLocator

    rows = np.asarray(sorted(orders))
    count, slices = rows.shape
    values = rows if prior is None else np.asarray(prior)[rows]
    with drawn(path, height=float(np.clip(0.22 * count, 1.5, 7)) + 0.9) as figure:
        axes = figure.add_subplot()
        top = slices - 1 if prior is None else max(prior)
        extent = (0.5, slices + 0.5, count - 0.5, -0.5)
        image = axes.imshow(values, cmap=SCALE, vmin=0, vmax=top, aspect="auto", interpolation="nearest", extent=extent)
        axes.set_title(title, fontsize=10, color=INK)
        axes.set_xlabel("position in the order (1: the top block, trained first)", color=INK, fontsize=8)
        axes.xaxis.set_label_position("top")
        axes.xaxis.tick_top()
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=24))
        axes.tick_params(length=0, colors=GREY)
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        if max(count, slices) <= MOST_NAMED:
            for (row, column), value in np.ndenumerate(rows):
                colour = "white" if values[row, column] > 0.55 * top else INK
                axes.text(column + 1, row, str(value), ha="center", va="center", color=colour, fontsize=7)
        bar = figure.colorbar(image, ax=axes, pad=0.01, aspect=30, shrink=0.7)
        bar.set_label("slice" if prior is None else "probability that a deletion hits the slice")
        bar.outline.set_visible(False)


def draw_comparison(comparison: Comparison, path: Path) -> None:
    """Draw the score of each system after its last deletions and repair against its hours a year."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    systems = sorted(
        (system for system in comparison.systems if system.points[-1].after is not None),
        key=lambda system: system.hours_a_year,
    )
    with drawn(path, height=4.2) as figure:
        axes = figure.add_subplot()
        for number, system in enumerate(systems):
            place = system.hours_a_year, system.score
            axes.plot(*place, "o", color=ORANGE if system.name == comparison.best else BLUE, markersize=7)
            away = (0, -16) if number % 2 else (0, 8)  # neighbours' names would meet
            axes.annotate(system.name, place, away, textcoords="offset points", ha="center", color=INK)
        axes.set_xscale("log")
        axes.margins(x=0.15, y=0.25)
        axes.set_ylim(axes.get_ylim())  # a guess may lie far below
        if comparison.guess is not None:
            axes.axhline(comparison.guess, color=GREY, linestyle=":", label=f"a guess: {comparison.guess:.3g}")
            axes.legend(loc="lower right", frameon=False)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("hours a year, to train on all records and to repair after each deletion")
        axes.set_ylabel("score after deletions and repair")
        axes.set_title(f"{comparison.trained_on} of {comparison.records} records", fontsize=10, color=INK)
        axes.spines[["top", "right"]].set_visible(False)
