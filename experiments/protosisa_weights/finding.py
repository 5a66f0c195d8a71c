"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row

EVEN = 0.5
"""Of the weights: both count alike."""
SLIGHTLY = 0.2
"""Points."""


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary = found["summary"]
    late = summary["late_deletions"]
    lines = [f"| weight of SISA's logits | no deletion | {late} deletions |", "|---|---|---|"]
    for weight, row in summary["accuracy"].items():
        lines.append(f"| {weight} | {percent(row['no_deletion'])} | {percent(row['late'])} |")
    best, accuracy = summary["best_weight"], summary["accuracy"]
    lower, others = (
        [row for weight, row in accuracy.items() if (float(weight) < EVEN) == below] for below in (True, False)
    )
    low, high = (max(row["late"] for row in rows) for rows in (lower, others))
    early = max(row["no_deletion"] for row in accuracy.values()) - max(row["no_deletion"] for row in lower)
    gained = 100 * (low - high)
    verdict = NOT if gained < SLIGHTLY else HOLDS if best["late"] < best["no_deletion"] else PART
    return Finding(
        "ProtoSISA does slightly better with a lower weight of SISA once many deletions have come",
        "Appendix C: slightly better with lower weights when the number of deletions is high.",
        "\n".join(lines),
        f"{verdict}: after {late} deletions the best weight below {EVEN:g} is {gained:+.1f} points above the best of "
        f"the others; without a deletion it is {100 * early:.1f} points below the best of all. The best weight is "
        f"{best['no_deletion']:g} at first and {best['late']:g} then",
    )
