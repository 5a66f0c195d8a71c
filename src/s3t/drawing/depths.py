"""How deep the shards of a simulated system still are, and whether it answers, against deletions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.drawing.figure import BLUE, GREEN, INK, ORANGE, drawn

Floats = NDArray[np.float64]

BANDS = ((0.05, 0.95, 0.18), (0.25, 0.75, 0.35))
"""Lower and upper quantile, and how opaque the band between them is."""
PLAIN_NUMBERS = 50_000
"""Up to so many deletions, the axis tells plain numbers; beyond, powers of ten."""


@dataclass(frozen=True, kw_only=True)
class DepthPicture:
    """What to draw.

    Attributes:
        title: what stands above.
        deletions: R numbers of deletions in the system, ascending.
        retained: R x (L + 1), the share of shards that are at least k slices deep.
        first_failure: expected deletions until the first shard is dead; None: never, or there are repairs.
        deletion_rate: until every shard is dead. Not shown where it is beyond the last of `deletions`.
        all_alive: R shares of systems with every shard alive; None: no such panel.
        some_alive: R shares of systems with a shard alive.
        unrepaired: R mean depths of the same system without repair, to compare with.
    """

    title: str
    deletions: Sequence[int]
    retained: Floats
    first_failure: float | None = None
    deletion_rate: float | None = None
    all_alive: Floats | None = None
    some_alive: Floats | None = None
    unrepaired: Floats | None = None


def draw_depths(picture: DepthPicture, path: Path) -> None:
    """Draw mean and bands of depth; below it, the share of systems that answer, if the picture has it.

    With that share, deletions are on a logarithmic axis: depth is lost early, and the last shard dies late.

    Raises:
        StorageError: the disk refused.
    """
    from matplotlib.ticker import LogLocator

    with drawn(path, height=5.2 if picture.all_alive is not None else 3.6) as figure:
        if picture.all_alive is None:
            axes = figure.add_subplot()
            _draw_depth(axes, picture)
            axes.set_xlim(0, picture.deletions[-1])
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=4, frameon=False)
            _frame(axes)
            return
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
        _draw_depth(upper, picture)
        _draw_alive(lower, picture)
        _mark_ends(upper, lower, picture)
        lower.set_xscale("log")
        if picture.deletions[-1] <= PLAIN_NUMBERS:
            lower.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            lower.xaxis.set_major_formatter("{x:,.0f}")
        lower.set_xlim(1, picture.deletions[-1])
        upper.tick_params(labelbottom=False)
        for axes in (upper, lower):
            axes.legend(loc="lower left", frameon=False)
        _frame(upper, lower)


def _frame(*panels: Any) -> None:
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("deletions in the system")


def _draw_depth(axes: Any, picture: DepthPicture) -> None:
    from matplotlib.ticker import MaxNLocator

    slices = picture.retained.shape[1] - 1
    for low, high, opacity in BANDS:
        edges = [_quantile(picture.retained, share) for share in (low, high)]
        label = f"{low:.0%} to {high:.0%} of the shards"
        axes.fill_between(picture.deletions, *edges, step="post", color=GREEN, alpha=opacity, linewidth=0, label=label)
    axes.plot(picture.deletions, picture.retained[:, 1:].sum(axis=1), color=GREEN, linewidth=2, label="mean")
    if picture.unrepaired is not None:
        axes.plot(
            picture.deletions, picture.unrepaired, color=INK, linewidth=1.2, linestyle=":", label="never repaired"
        )
    axes.set_ylim(0, slices * 1.02)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_ylabel(f"depth of a shard (of {slices})")
    axes.set_title(picture.title, fontsize=10, color=INK, pad=24)


def _draw_alive(axes: Any, picture: DepthPicture) -> None:
    axes.plot(picture.deletions, picture.all_alive, color=ORANGE, linewidth=2, label="every shard alive")
    axes.plot(picture.deletions, picture.some_alive, "--", color=BLUE, linewidth=2, label="some shard alive")
    axes.set_ylim(0, 1.04)
    axes.set_ylabel("share of systems")


def _mark_ends(upper: Any, lower: Any, picture: DepthPicture) -> None:
    """Lines where the first and the last shard are expected to die; their names lean away from each other."""
    ends = (picture.first_failure, picture.deletion_rate)
    first, last = (None if when is None or when > picture.deletions[-1] else when for when in ends)
    if first is not None and last is not None and last <= first * 1.001:  # one shard
        marks = [(last, "center", f"first failure = deletion rate {last:,.4g}", BLUE)]
    else:
        marks = []
        if first is not None:
            marks.append((first, "center" if last is None else "right", f"first failure {first:,.4g} ", ORANGE))
        if last is not None:
            marks.append((last, "center" if first is None else "left", f" deletion rate {last:,.4g}", BLUE))
    for x, side, text, colour in marks:
        for axes in (upper, lower):
            axes.axvline(x, color=colour, linestyle=(0, (5, 3)), linewidth=1.2)
        upper.text(
            x, 1.02, text, ha=side, va="bottom", color=colour, fontsize=8.5, transform=upper.get_xaxis_transform()
        )


def _quantile(retained: Floats, share: float) -> NDArray[np.int64]:
    """R depths: the smallest k that at least this share of the shards does not exceed."""
    beyond = np.concatenate([retained[:, 1:], np.zeros((len(retained), 1))], axis=1)  # P[depth > k]
    return np.asarray(np.argmax(beyond <= 1 - share + 1e-12, axis=1))
