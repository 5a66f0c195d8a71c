"""Depth of the shards of a simulated system, against deletions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from s3t.drawing.figure import GREEN, INK, drawn

Floats = NDArray[np.float64]

BANDS = ((0.05, 0.95, 0.18), (0.25, 0.75, 0.35))
"""Lower and upper quantile, and how opaque the band between them is."""


def draw_depths(
    deletions: Sequence[int], retained: Floats, path: Path, *, title: str, unrepaired: Floats | None = None
) -> None:
    """Draw mean and bands of depth.

    Args:
        deletions: R numbers of deletions in the system, ascending; on a logarithmic axis, unless there are repairs.
        retained: R x (L + 1), the share of shards that are at least k slices deep.
        unrepaired: where there are repairs, R mean depths of the same system without them.
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


def _quantile(retained: Floats, share: float) -> NDArray[np.int64]:
    """R depths: the smallest k that at least this share of the shards does not exceed."""
    beyond = np.concatenate([retained[:, 1:], np.zeros((len(retained), 1))], axis=1)  # P[depth > k]
    return np.asarray(np.argmax(beyond <= 1 - share + 1e-12, axis=1))
