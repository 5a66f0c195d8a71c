"""Verdict on the paper's claim."""

from __future__ import annotations

from itertools import pairwise

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

FAR = 0.05
"""Of a rate, that the paper's simulated one may be off."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    table = [row for row in summary["table"] if row["paper_gb"]]
    off, times = summary["paper_rate_off_at_most"], summary["paper_over_ours_gb"]
    last, steps = table[-1], [later["rate"] - row["rate"] for row, later in pairwise(table)]
    little, slows = last["gb_survival"] < summary["model_gb"] / 2, all(later < step for step, later in pairwise(steps))
    return Finding(
        "For ViT-large the adapters take little beside the model, and the rate rises less and less",
        f"{HOLDS if little and slows and off < FAR else PART if little or slows else NOT}: by our count "
        f"{last['gb_survival']:.2f} GB at B={last['budget']} beside {summary['model_gb']:.2f}, and an order more adds "
        f"{steps[0]:.1f}, later {steps[-1]:.1f} deletions. The paper's rates are within {100 * off:.1f} % of the exact "
        f"ones; its gigabytes are {times:.1f} times ours",
    )
