"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    cases, won = (summary[name] for name in ("cases_with_full_budget", "bms_score_wins_with_full_budget_in"))
    depth = summary["bms_depth_wins_with_full_budget_in"]
    return Finding(
        "BMS's score is above that of sorted cyclic rotation",
        f"{HOLDS if won == cases else PART if won > cases / 2 else NOT}: in {won} of {cases} cases; in the depth that "
        f"is served it is above in {depth}, and `survival` in {summary['survival_depth_wins_with_full_budget_in']}",
    )
