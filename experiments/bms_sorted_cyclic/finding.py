"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

ORDERS = ("bms", "survival")


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary = found["summary"]
    lines = [
        "| B = L | score: bms | score: survival | expected depth: bms | expected depth: survival |",
        "|---|---|---|---|---|",
    ]
    for row in summary["over_slices"]:
        cells = (f"{row[f'{name}_{what}_ratio']:.2f}" for what in ("score", "depth") for name in ORDERS)
        lines.append(f"| {row['slices']} | {' | '.join(cells)} |")
    lines.append("\nTimes sorted rotation's, means over the priors.")
    cases, won = (summary[name] for name in ("cases_with_full_budget", "bms_score_wins_with_full_budget_in"))
    depth = summary["bms_depth_wins_with_full_budget_in"]
    return Finding(
        "BMS's score is above that of sorted cyclic rotation",
        "Appendix C, B = L, ten Dirichlet priors: consistently.",
        "\n".join(lines),
        f"{HOLDS if won == cases else PART if won > cases / 2 else NOT}: in {won} of {cases} cases; in the depth that "
        f"is served it is above in {depth}, and `survival` in {summary['survival_depth_wins_with_full_budget_in']}",
    )
