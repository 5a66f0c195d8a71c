"""Verdict on our claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

WITHIN = 1.0
"""Points below full fine-tuning of the same night, in the mean over the month."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    systems = found["summary"]
    full, ours, head = systems["full"], systems["s3t"], systems["ridge"]
    close, cheap = ours["apart"] >= -WITHIN, ours["year_hours"] < full["year_hours"]
    verdict = HOLDS if close and cheap else PART if close or cheap else NOT
    shares = [system["year_hours"] / full["year_hours"] for system in (ours, head)]
    return Finding(
        "Learning weekly costs little accuracy beside full fine-tuning every night, and far less training (our claim)",
        f"{verdict}: S3T {ours['apart']:+.1f} points in the mean, for {100 * shares[0]:.0f} % of the training of a "
        f"year; a head on frozen features {head['apart']:+.1f} points, for {100 * shares[1]:.1f} %",
    )
