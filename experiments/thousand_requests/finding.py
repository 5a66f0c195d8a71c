"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

WHATS = ("less_compute_than_sisa", "less_compute_than_full")


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    paper, against = found["config"]["paper"], summary["against_sisa_and_full"]
    sisa, full = (max(row[what] or 0.0 for row in against.values()) for what in WHATS)
    near = sisa > 0.7 * paper["times_less_than_sisa"] and full > 0.7 * paper["times_less_than_full"]
    verdict = HOLDS if sisa >= 1 and full >= 1 and near else PART if sisa >= 1 or full >= 1 else NOT
    several = {name: row for name, row in against.items() if name != "s3t, B=1"}
    most = max(row["less_compute_than_sisa"] or 0.0 for row in several.values())
    one, four = against["s3t, B=1"], against["s3t, B=4"]
    return Finding(
        "Over 1,000 requests S3T takes less time than SISA, and much less than full retraining",
        f"{verdict}: repairs on exhaustion train at best {_times(full)} full retraining, with one order "
        f"{_times(one['less_compute_than_sisa'])} SISA and with several at best {_times(most)} SISA; at B=4 it has "
        f"{four['fewer_outages_than_sisa']:.2f} times fewer outages than SISA and "
        f"{four['less_downtime_than_sisa']:.1f} times less downtime",
    )


def _times(less: float) -> str:
    return f"{less:.2f} times less than" if less >= 1 else f"{1 / less:.2f} times" if less else "infinitely more than"
