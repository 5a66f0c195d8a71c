"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    share = summary["bms_above_uniform_in"] / summary["cases"]
    first, last = summary["curves"][0], summary["curves"][-1]
    return Finding(
        "When the deletion prior is known, a system takes significantly more deletions",
        f"{HOLDS if share == 1 else PART if share > 0.5 else NOT}: in {summary['bms_above_uniform_in']} of "
        f"{summary['cases']} cases; at B=1 BMS has {100 * first['bms_rate'] / last['bms_rate']:.0f} % of what it has "
        f"at B=L",
    )
