"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

EVEN = 0.5
"""Of the weights: both count alike. At most that is low."""
SLIGHTLY = 0.2
"""Points."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    late = summary["late_deletions"]
    best, accuracy = summary["best_weight"], summary["accuracy"]
    first = best["no_deletion"]
    lower = [row for weight, row in accuracy.items() if float(weight) < first]
    gained = 100 * (max((row["late"] for row in lower), default=0.0) - accuracy[f"{first:g}"]["late"])
    verdict = NOT if gained < SLIGHTLY else HOLDS if best["late"] <= EVEN else PART
    return Finding(
        "ProtoSISA does slightly better with a lower weight of SISA once many deletions have come",
        f"{verdict}: the best weight is {first:g} without a deletion and {best['late']:g} after {late}, where a "
        f"lower one gains {gained:.1f} points; {EVEN:g} or less would be low",
    )
