"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    off = max(row["largest_relative_residual"] for row in summary.values())
    return Finding(
        "Training time grows linearly with the trained layers",
        f"{HOLDS if off < 0.1 else PART if off < 0.25 else NOT}: without the cache no time is further than "
        f"{100 * off:.1f} % from a line",
    )
