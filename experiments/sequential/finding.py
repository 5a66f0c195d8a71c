"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row

MARGIN = 2.0
"""Points below that count as similar."""


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary = found["summary"]
    slices = range(1, found["config"]["slices"] + 1)
    lines = [
        f"| system | parameters a stage | {' | '.join(f'after slice {count}' for count in slices)} |",
        f"|---|---|{'---|' * len(slices)}",
    ]
    for name in ("s3t", "sequential"):
        cells = " | ".join(percent(value) for value in summary[name]["accuracy"])
        lines.append(f"| {name} | {summary[name]['parameters']:,} | {cells} |")
    apart = summary["points_above_at_the_end"]
    rises = summary["s3t"]["accuracy"][-1] > summary["s3t"]["accuracy"][0]
    verdict = NOT if apart <= -MARGIN else HOLDS if rises else PART
    return Finding(
        "S3T is about as good as sequential training, with fewer trained parameters",
        "Appendix C: accuracy rises with the slices, similar to or above sequential training, with L times fewer "
        "parameters.",
        "\n".join(lines),
        f"{verdict}: {apart:+.1f} points at the end, with {summary['times_fewer_parameters']:.1f} times fewer "
        "parameters a stage (the head is in both)",
    )
