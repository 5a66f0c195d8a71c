"""Verdict on the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

MARGIN = 3.0
"""Percent of perplexity."""


def finding(found: Row) -> Finding:
    """The claim and its verdict. Where full training itself gains less than the margin, it holds in part at most."""
    summary = found["summary"]
    apart, gained = summary["percent_above_full"], summary["full_percent_below_base"]
    low, high = apart["interval"] or (apart["mean"], apart["mean"])
    verdict = NOT if low > MARGIN else HOLDS if high <= MARGIN < gained else PART
    kept = summary["share_of_full_gain"]
    share = "" if kept is None else f", and {100 * kept:.0f} % of what full training takes off the loss"
    ours, full, base = (f"{summary['perplexity'][system]:.2f}" for system in ("slice-wise", "full", "base"))
    return Finding(
        "Slice-wise training is about as good as full training for a language model, too",
        f"{verdict}: perplexity {ours} slice by slice, {full} at once, {base} without training; {apart['mean']:+.1f} % "
        f"({low:+.1f} to {high:+.1f}) from full training, where {MARGIN:g} % would be comparable{share}. Not the "
        "paper's tasks",
    )
