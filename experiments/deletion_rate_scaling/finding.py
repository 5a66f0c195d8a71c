"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

PAPER = {"small budget": 1.6, "shards": 2.3, "slices": 3.0}
"""Times SISA's rate, as Section 4.3 tells them."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary, few = found["summary"], str(found["config"]["small_budget"])
    shards, slices = (list(summary[f"gain_by_{what}_with_all"].values()) for what in ("shards", "slices"))
    few_slices = list(summary["gain_by_slices_with_few"].values())
    gain = summary["gain_by_budget"][few]
    reached = gain >= PAPER["small budget"] and max(shards) >= PAPER["shards"] and max(slices) >= PAPER["slices"]
    grows = shards[-1] > shards[0] and slices[-1] > slices[0]
    return Finding(
        "The deletion rate grows faster than SISA's, with the budget, the shards and the slices",
        f"{HOLDS if reached and grows else PART if reached or grows else NOT}: at B={few} it is {gain:.2f} times "
        f"SISA's; with the slices the gain goes to {slices[-1]:.2f} if B=L, and to {few_slices[-1]:.2f} if B={few}; "
        f"with the shards it goes from {shards[0]:.2f} to {shards[-1]:.2f}",
    )
