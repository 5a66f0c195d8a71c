"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row

MARGIN = 2.5
"""Points."""


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    tasks = found["summary"]["tasks"]
    lines = [
        "| task | metric | full | slice by slice | points apart (95 % interval) |",
        "|---|---|---|---|---|",
    ]
    for name, row in tasks.items():
        low, high = row["points_interval"]
        lines.append(
            f"| {name} | {row['metric']} | {100 * row['full']:.1f} | {100 * row['slice-wise']:.1f} "
            f"| {row['points_apart']:+.1f} ({low:+.1f} to {high:+.1f}) |"
        )
    counted = {name: row for name, row in tasks.items() if _learned(row)}
    near = [name for name, row in counted.items() if row["points_interval"][0] > -MARGIN]
    worse = [name for name, row in counted.items() if row["points_interval"][1] < -MARGIN]
    verdict = HOLDS if len(near) == len(counted) else NOT if len(worse) > len(counted) / 2 else PART
    chance = sorted(tasks.keys() - counted.keys())
    told = f"; for certain further below on {', '.join(worse)}" if worse else ""
    told += f"; not counted, because full training is hardly above a guess: {', '.join(chance)}" if chance else ""
    return Finding(
        "Slice-wise training is about as good as full training",
        'Section 5.2: "comparable performance to full training across all settings", at times better.',
        "\n".join(lines),
        f"{verdict}: for certain within {MARGIN:g} points of full training on {len(near)} of {len(counted)} tasks, at "
        f"equal epochs{told}",
    )


def _learned(row: Row) -> bool:
    """Whether full training is above what a guess gets."""
    guess = row["share_of_the_largest_label"] if row["metric"] == "accuracy" else 0.0
    return bool(row["full"] > (guess or 0.0) + 0.03)
