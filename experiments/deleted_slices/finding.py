"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

SMALL = 0.05
"""The paper's."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    rows = found["rows"]
    told = [row for row in rows if row["better_than_a_guess"]]
    worst = {row["task"]: max(drop or 0.0 for drop in row["relative_drop"]) for row in told}
    guessed = [row["task"] for row in rows if row not in told]
    small = worst["cifar10"] < SMALL
    less = sum(worst["cifar10"] < drop for name, drop in worst.items() if name != "cifar10")
    most = less >= (len(worst) - 1) / 2
    return Finding(
        "Little is lost as slices are deleted, on images less than on texts",
        f"{HOLDS if small and most else PART if small or most else NOT}: with one slice left, CIFAR-10 loses "
        f"{100 * worst['cifar10']:.1f} %, and {less} of {len(worst) - 1} text tasks lose more; the deepest slices are "
        f"deleted first{'; not counted, hardly better than a guess: ' + ', '.join(guessed) if guessed else ''}",
    )
