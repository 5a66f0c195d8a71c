"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

MARGIN = 2.0
"""Points below that count as similar."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    apart = summary["points_above_at_the_end"]
    rises = summary["s3t"]["accuracy"][-1] > summary["s3t"]["accuracy"][0]
    verdict = NOT if apart <= -MARGIN else HOLDS if rises else PART
    return Finding(
        "S3T is about as good as sequential training, with fewer trained parameters",
        f"{verdict}: {apart:+.1f} points at the end, with {summary['times_fewer_parameters']:.1f} times fewer "
        "parameters a stage",
    )
