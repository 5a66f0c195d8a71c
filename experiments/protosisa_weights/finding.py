"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, Finding, percent
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary = found["summary"]
    late = summary["late_deletions"]
    lines = [f"| weight of SISA's logits | no deletion | {late} deletions |", "|---|---|---|"]
    for weight, row in summary["accuracy"].items():
        lines.append(f"| {weight} | {percent(row['no_deletion'])} | {percent(row['late'])} |")
    best, accuracy = summary["best_weight"], summary["accuracy"]
    gained = accuracy[f"{best['late']:g}"]["late"] - accuracy[f"{best['no_deletion']:g}"]["late"]
    return Finding(
        "ProtoSISA does slightly better with a lower weight of SISA once many deletions have come",
        "Appendix C: slightly better with lower weights when the number of deletions is high.",
        "\n".join(lines),
        f"{HOLDS if best['late'] < best['no_deletion'] and gained > 0.002 else NOT}: the best weight is "
        f"{best['no_deletion']:g} without a deletion and {best['late']:g} after {late}, where it gives "
        f"{100 * gained:.1f} points more",
    )
