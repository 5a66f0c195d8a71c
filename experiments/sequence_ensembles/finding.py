"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    rows = found["rows"]
    gained = summary["accuracy"]["points_gained"]
    few = summary["accuracy"]["points_gained_by"].get("6", 0.0)
    noise = 100 * rows[0]["accuracy_spread"]  # of one order chosen at random
    verdict = HOLDS if gained > noise and few > 0.6 * gained else PART if gained > 0 else NOT
    return Finding(
        "Several orders of a shard together answer better, at first",
        f"{verdict}: all orders gain {gained:.1f} points over one, six of them {few:.1f}; of one shard alone they gain "
        f"{summary['one_shard']['points_gained']:.1f}",
    )
