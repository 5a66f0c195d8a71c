"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.chance import CLEARLY, interval
from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    counted = [name for name, row in summary.items() if row["6x1"]["score"] > CLEARLY + _guess(found, name)]
    guessed = sorted(summary.keys() - set(counted))
    held, told = 0, []
    for name in counted:
        helped, hurt = (_apart(found, name, "1x3", other) for other in ("1x1", "1x6"))
        held += (helped[0] > 0) + (hurt[0] > 0)
        row = summary[name]
        told.append(
            f"on {name} with one layer a slice, three slices are {_told(helped)} points above one, and {_told(hurt)} "
            f"above six, which have {percent(row['1x6']['score'])}; six layers at once have "
            f"{percent(row['6x1']['score'])}"
        )
    told += [f"not counted, hardly better than a guess: {', '.join(guessed)}"] if guessed else []
    return Finding(
        "With few layers a slice, more slices first help and then hurt",
        f"{HOLDS if held == 2 * len(counted) > 0 else PART if held else NOT}: {'; '.join(told)}",
    )


def _apart(found: Row, name: str, one: str, other: str) -> tuple[float, float]:
    """The interval of what one shape is above another, in points, seed by seed."""
    scores = {
        shape: [row["score"] for row in found["rows"] if row["task"] == name and _shape(row) == shape]
        for shape in (one, other)
    }
    apart = [100 * (ours - theirs) for ours, theirs in zip(scores[one], scores[other], strict=True)]
    low, high = interval(apart) or (min(apart), max(apart))
    return low, high


def _shape(row: Row) -> str:
    """Layers a slice times slices, as the summary names them."""
    return f"{row['layers']}x{row['slices']}"


def _guess(found: Row, name: str) -> float:
    return float(next(row["guess"] for row in found["rows"] if row["task"] == name))


def _told(ends: tuple[float, float]) -> str:
    return f"{ends[0]:+.1f} to {ends[1]:+.1f}"
