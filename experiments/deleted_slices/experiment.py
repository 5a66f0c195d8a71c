"""What slice-wise training gives at every depth, beside its full depth: from the results of `slice_wise`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from experiments.runner import Row, results
from experiments.settings import Settings


class Config(Settings):
    """Tasks of `slice_wise`."""

    tasks: tuple[str, ...]
    """By name."""


def points(config: Config) -> list[Row]:
    """One a task."""
    return [{"task": name} for name in config.tasks]


def measure(config: Config, point: Row) -> Row:
    """For every number of deleted slices, the last ones of the order, the mean score and the relative drop.

    With k slices deleted no order serves more than the L - k others, so no system keeps more than this, however many
    orders it has; a deletion of an order's first slice takes all of it.
    """
    read = results("slice_wise")
    rows = [row for row in read["rows"] if row["task"] == point["task"]]
    ours = [row["per_depth"] for row in rows if row["system"] == "slice-wise"]
    scores = [statistics.fmean(score or 0.0 for score in at) for at in zip(*ours, strict=True)][::-1]
    return {
        "metric": rows[0]["metric"],
        "better_than_a_guess": read["summary"]["tasks"][point["task"]]["better_than_a_guess"],
        "slices": len(scores),
        "scores": scores,
        "relative_drop": [1 - score / scores[0] if scores[0] else None for score in scores],
    }


def summary(config: Config, rows: Sequence[Row]) -> Row:
    """The drop when one slice is deleted, when two are, and when one is left."""
    return {
        row["task"]: {
            "one_deleted": row["relative_drop"][1],
            "two_deleted": row["relative_drop"][2],
            "one_left": row["relative_drop"][-1],
        }
        for row in rows
    }
