"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row
from experiments.slice_wise.experiment import AS_MANY

MARGIN = 2.5
"""Points."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    tasks, pooled = found["summary"]["tasks"], found["summary"]["points_apart"]
    counted = {name: row["points_apart"] for name, row in tasks.items() if row["better_than_a_guess"]}
    low, high = (min(_ends(apart)[end] for apart in pooled.values()) for end in (0, 1))
    worse = [
        f"{name} ({apart[system]['mean']:+.1f}, {system})"
        for name, apart in counted.items()
        for system in apart
        if _ends(apart[system])[1] < -MARGIN
    ]
    verdict = NOT if high < -MARGIN else HOLDS if low > -MARGIN and not worse else PART
    told = f"; for certain more than that below on {', '.join(worse)}" if worse else ""
    guessed = sorted(tasks.keys() - counted.keys())
    told += f"; not counted, hardly better than a guess: {', '.join(guessed)}" if guessed else ""
    compared = f"{_told(pooled['full'])} points at equal epochs"
    if AS_MANY in pooled:
        compared += f", and {_told(pooled[AS_MANY])} at as many records"
    return Finding(
        "Slice-wise training is about as good as full training",
        f"{verdict}: over {len(counted)} tasks {compared}; {MARGIN:g} below would be comparable{told}",
    )


def _ends(apart: Row) -> tuple[float, float]:
    low, high = apart["interval"] or (apart["mean"], apart["mean"])
    return low, high


def _told(apart: Row) -> str:
    low, high = _ends(apart)
    return f"{apart['mean']:+.1f} ({_end(low)} to {_end(high)})"


def _end(value: float) -> str:
    """With one place, or where that would be 0 with two.

    >>> _end(-0.026), _end(-3.47)
    ('-0.03', '-3.5')
    """
    return f"{value:+.1f}" if abs(value) >= 0.05 else f"{value:+.2f}"
