"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    apart: dict[str, tuple[float, float, float]] = {}
    for name, systems in found["summary"].items():
        for budget in found["config"]["budgets"]:
            row = systems[f"B={budget}"]
            mean = row["mean_points_above"]
            apart[f"{name}, B={budget}"] = (mean, *(row["interval"] or (mean, mean)))
    surely = all(low > 0 for _, low, _ in apart.values())
    told = "; ".join(
        f"{where} {mean:+.1f} points ({low:+.1f} to {high:+.1f})" for where, (mean, low, high) in apart.items()
    )
    return Finding(
        "The orders of `survival` keep more accuracy than the paper's (our claim)",
        f"{HOLDS if surely else PART if max(apart.values()) > (0,) else NOT}: in the mean over numbers of deletions, "
        f"a dead system counted as never right: {told}",
    )
