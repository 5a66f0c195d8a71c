"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    lines = [
        "| model | ms a step and trained layer | ms with none | R² of the line | gained by the cache |",
        "|---|---|---|---|---|",
    ]
    summary = found["summary"]
    for name, row in summary.items():
        gains = list(row["times_as_fast_with_cache"].values())
        lines.append(
            f"| {name} | {row['ms_a_layer']:.1f} | {row['ms_with_none']:.1f} | {row['r_squared']:.3f} "
            f"| {min(gains):.2f} to {max(gains):.2f} times |"
        )
    off = max(row["largest_relative_residual"] for row in summary.values())
    return Finding(
        "Training time grows linearly with the trained layers",
        "Appendix C: RoBERTa-large; linear.",
        "\n".join(lines),
        f"{HOLDS if off < 0.1 else PART if off < 0.25 else NOT}: without the cache no time is further than "
        f"{100 * off:.1f} % from a line",
    )
