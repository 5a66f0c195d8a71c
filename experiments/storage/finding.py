"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

FAR = 0.05
"""Of a rate, that the paper's simulated one may be off."""


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary = found["summary"]
    table = [row for row in summary["table"] if row["paper_gb"]]
    lines = [
        "| B | GB, paper | GB, whole adapters a stage | GB, s3t | rate, paper | rate, exact |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['budget']} | {row['paper_gb']:.2f} | {row['gb_whole_adapter_a_stage']:.2f} | {row['gb_survival']:.2f} "
        f"| {row['paper_rate']:.1f} | {row['rate']:.1f} |"
        for row in table
    ]
    off, times = summary["paper_rate_off_at_most"], summary["paper_over_ours_gb"]
    whole = max(abs(row["gb_whole_adapter_a_stage"] / row["paper_gb"] - 1) for row in table)
    return Finding(
        "For ViT-large the adapters take little beside the model, and the rate rises less and less",
        "Appendix C, m=5, L=6: 0.21 GB an order beside 1.2 GB; rates from 66.4 to 124.1.",
        "\n".join(lines),
        f"{HOLDS if off < FAR and times > 1 else PART if off < FAR or times > 1 else NOT}: its rates are within "
        f"{100 * off:.1f} % of the exact ones; its gigabytes are {times:.1f} times ours, and within "
        f"{100 * whole:.0f} % of an adapter of all layers kept at every stage",
    )
