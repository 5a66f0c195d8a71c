"""What the results say of the paper's claim."""

from __future__ import annotations

from itertools import pairwise

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

ERRORS = 3.0
"""Standard errors that simulated means may be off."""


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary, slices = found["summary"], found["config"]["slices"]
    rates = {int(budget): rate for budget, rate in summary["rate_by_budget"].items()}
    shown = [budget for budget in rates if budget <= slices and budget & (budget - 1) == 0]
    lines = [f"| | {' | '.join(f'B = {budget}' for budget in shown)} |", f"|---|{'---|' * len(shown)}"]
    for told, curve in (("every shard is dead", "rate_by_budget"), ("the first shard is dead", "first_by_budget")):
        lines.append(f"| deletions until {told} | {' | '.join(f'{summary[curve][str(at)]:.0f}' for at in shown)} |")
    below = [(budget, rate) for budget, rate in rates.items() if budget <= slices]
    slopes = [(after - before) / (later - budget) for (budget, before), (later, after) in pairwise(below)]
    grows, slows = min(slopes) > 0, all(later <= slope for slope, later in pairwise(slopes))
    simulated = summary["simulated_off_in_standard_errors_at_most"]
    return Finding(
        "The deletion rate grows steadily with the budget, faster at first",
        f"Section 4.2, m=5, L={slices}: steady growth, slightly higher at first.",
        "\n".join(lines),
        f"{HOLDS if grows and slows and simulated < ERRORS else PART if grows else NOT}: exact; half of the growth is "
        f"had at B={summary['half_of_the_growth_by_budget']}, and at B=L the rate is {summary['gain_at_most']:.2f} "
        f"times SISA's; simulated means are within {simulated:.1f} standard errors",
    )
