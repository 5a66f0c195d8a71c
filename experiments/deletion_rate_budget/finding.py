"""Verdict on the paper's claim."""

from __future__ import annotations

from itertools import pairwise

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

ERRORS = 3.0
"""Standard errors that simulated means may be off."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary, slices = found["summary"], found["config"]["slices"]
    rates = {int(budget): rate for budget, rate in summary["rate_by_budget"].items()}
    below = [(budget, rate) for budget, rate in rates.items() if budget <= slices]
    slopes = [(after - before) / (later - budget) for (budget, before), (later, after) in pairwise(below)]
    grows, slows = min(slopes) > 0, all(later <= slope for slope, later in pairwise(slopes))
    simulated = summary["simulated_off_in_standard_errors_at_most"]
    return Finding(
        "The deletion rate grows steadily with the budget, faster at first",
        f"{HOLDS if grows and slows and simulated < ERRORS else PART if grows else NOT}: exact; half of the growth is "
        f"had at B={summary['half_of_the_growth_by_budget']}, and at B=L the rate is {summary['gain_at_most']:.2f} "
        f"times SISA's",
    )
