"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    distant = summary["bms_distance_is_the_number_of_slices_in"] == summary["cases_with_pairs"]
    higher = summary["bms_score_above_random_in"] == summary["cases"]
    return Finding(
        "BMS's orders are as diverse as can be and score higher than random ones",
        f"{HOLDS if distant and higher else PART if distant or higher else NOT}: distance L in "
        f"{summary['bms_distance_is_the_number_of_slices_in']} of {summary['cases_with_pairs']} cases, a higher score "
        f"in {summary['bms_score_above_random_in']} of {summary['cases']}",
    )
