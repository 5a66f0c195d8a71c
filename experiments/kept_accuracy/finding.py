"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary = found["summary"]
    at = [str(count) for count in found["config"]["deletions"] if count in (0, 1, 2, 4, 8, 16)]
    lines = [f"| task, orders | {' | '.join(f'{count} deletions' for count in at)} |", f"|---|{'---|' * len(at)}"]
    apart = []
    for name, budgets in summary.items():
        for budget, row in budgets.items():
            apart += row["mean_points_above_by_seed"]
            for selector, values in row["accuracy"].items():
                lines.append(f"| {name}, {budget}, {selector} | {' | '.join(percent(values[count]) for count in at)} |")
    return Finding(
        "The orders of `survival` keep more accuracy than the paper's",
        "Ours only: the paper chooses rotations; `survival` is built for the expected depth.",
        "\n".join(lines),
        f"{HOLDS if min(apart) > 0 else PART if max(apart) > 0 else NOT}: in the mean over the measured numbers of "
        f"deletions {min(apart):+.2f} to {max(apart):+.2f} points by task and seed, a dead system counted as wrong",
    )
