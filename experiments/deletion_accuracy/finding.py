"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row

BEHIND = 0.5
"""Points that may be lacking against a baseline anywhere: one training is compared with one."""
NEAR = 2.0
"""Points below all orders that count as close."""


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    systems, full = found["summary"]["systems"], found["summary"]["full"]
    lines = ["| system | no deletion | 20 deletions | 40 deletions | half are dead after |", "|---|---|---|---|---|"]
    for name, row in systems.items():
        cells = [percent(row.get(key)) for key in ("at_start", "after_20", "after_40")]
        half = f"{row['half_dead_after']} deletions" if row["half_dead_after"] else "more than were made"
        lines.append(f"| {name} | {' | '.join(cells)} | {half} |")
    told = ", ".join(f"{percent(row['accuracy'])} after {count}" for count, row in full.items())
    lines.append(f"\nRetrained in full every time: {told} deletions.")
    few = next(row for name, row in systems.items() if name.startswith("s3t, B=4"))  # the paper's orders
    most = next(row for name, row in systems.items() if name.startswith("s3t, B=24"))
    theirs = [row for name, row in systems.items() if not name.startswith("s3t")]
    points = ["at_start", *(f"after_{count}" for count in (10, 20, 40, 80))]
    above = {
        at: 100 * (few[at] - max(row[at] for row in theirs if at in row))
        for at in points
        if at in few and any(at in row for row in theirs)
    }
    apart = 100 * max(most[at] - few[at] for at in points if at in few and at in most)
    better, near = min(above.values()) > -BEHIND, apart < NEAR
    against = ", ".join(
        f"{apiece:+.1f} points {'without a deletion' if at == 'at_start' else at.replace('_', ' ')}"
        for at, apiece in above.items()
    )
    return Finding(
        "S3T handles more deletions than SISA and ProtoSISA, and answers better meanwhile",
        "Section 4.2: SISA and ProtoSISA end after about 40 deletions; S3T goes on, and is better; B=4 is near B=24.",
        "\n".join(lines),
        f"{HOLDS if better and near else PART if better or near else NOT}: at B=4 half are dead after "
        f"{few['half_dead_after']} deletions, of SISA after {systems['sisa']['half_dead_after']} (arithmetic, "
        f"without training); where both answer, B=4 against the best of SISA and ProtoSISA: {against}; it is at most "
        f"{apart:.1f} points below B=24",
    )
