"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    ours, paper = summary["times_one_order"], summary["paper_times_one_order"]
    linear = all(abs(ours[budget] - times) < 0.05 * times for budget, times in paper.items())
    return Finding(
        "Storage grows linearly with the budget",
        f"{HOLDS if linear else NOT}: {'linear' if linear else 'not linear'} up to B = L; above, prefixes are shared. "
        f"SISA stores {summary['sisa_over_one_order']:.1f} times what one order of S3T does",
    )
