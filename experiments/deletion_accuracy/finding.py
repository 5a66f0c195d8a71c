"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

BEHIND = 0.5
"""Points that may be lacking against a baseline anywhere: one training is compared with one."""
NEAR = 2.0
"""Points below all orders that count as close."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    systems = found["summary"]["systems"]
    few = next(row for name, row in systems.items() if name.startswith("s3t, B=4"))
    most = next(row for name, row in systems.items() if name.startswith("s3t, B=24"))
    theirs = [row for name, row in systems.items() if not name.startswith("s3t")]
    above = _above(few, theirs)
    apart = max(-points for points in _above(few, [most]).values())
    better, near = min(above.values()) > -BEHIND, apart < NEAR
    return Finding(
        "S3T handles more deletions than SISA and ProtoSISA, and answers better meanwhile",
        f"{HOLDS if better and near else PART if better or near else NOT}: at B=4 half are dead after "
        f"{few['half_dead_after']} deletions, of SISA after {systems['sisa']['half_dead_after']}. "
        f"Where SISA answers, B=4 is {min(above.values()):+.1f} to {max(above.values()):+.1f} points from the better "
        f"of both, and at most {apart:.1f} points below B=24",
    )


def _above(one: Row, others: list[Row]) -> dict[str, float]:
    """By number of deletions, the points by which a system is above the best of others on the same deletion orders."""
    what = "accuracy_where_sisa_answers"
    return {at: 100 * (own - max(row[what][at] for row in others)) for at, own in one[what].items() if own is not None}
