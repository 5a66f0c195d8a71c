"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary = found["summary"]
    at = [str(count) for count in found["config"]["deletions"] if count in (0, 1, 2, 4, 8, 16)]
    lines = [
        f"| task, orders | {' | '.join(f'after {count}' for count in at)} |",
        f"|---|{'---|' * len(at)}",
    ]
    apart: dict[str, tuple[float, float, float]] = {}
    for name, budgets in summary.items():
        for budget, row in budgets.items():
            mean = row["mean_points_above"]
            apart[f"{name}, {budget}"] = (mean, *(row["interval"] or (mean, mean)))
            for selector, values in row["accuracy"].items():
                lines.append(f"| {name}, {budget}, {selector} | {' | '.join(percent(values[count]) for count in at)} |")
    surely = all(low > 0 for _, low, _ in apart.values())
    told = "; ".join(
        f"{where} {mean:+.1f} points ({low:+.1f} to {high:+.1f})" for where, (mean, low, high) in apart.items()
    )
    return Finding(
        "The orders of `survival` keep more accuracy than the paper's",
        "Ours only: the paper chooses rotations; `survival` is built for the expected depth.",
        "\n".join(lines),
        f"{HOLDS if surely else PART if max(apart.values()) > (0,) else NOT}: in the mean over the measured numbers of "
        f"deletions, a dead system counted as never right: {told}",
    )
