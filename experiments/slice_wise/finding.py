"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row
from experiments.slice_wise.experiment import AS_MANY

MARGIN = 2.5
"""Points."""


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    tasks, pooled = found["summary"]["tasks"], found["summary"]["points_apart"]
    lines = [
        "| task | metric | slice by slice | full, as many epochs | points apart (95 %) | full, as many passes |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in tasks.items():
        low, high = row["points_interval"]
        lines.append(
            f"| {name} | {row['metric']} | {100 * row['slice-wise']:.1f} | {100 * row['full']:.1f} "
            f"| {row['points_apart']:+.1f} ({low:+.1f} to {high:+.1f}) | {_hundred(row.get(AS_MANY))} |"
        )
    lines.append(
        "\nIn as many epochs, slice-wise training passes (L + 1) / 2 times as many records as full training, through "
        "fewer trained layers. The last column is full training that sees as many records."
    )
    counted = {name: row for name, row in tasks.items() if row["better_than_a_guess"]}
    worse = [name for name, row in counted.items() if row["points_interval"][1] < -MARGIN]
    good = [name for name, row in counted.items() if row["points_interval"][0] > -MARGIN]
    open_ = [name for name in counted if name not in worse + good]
    low, high = found["summary"]["points_interval"] or (pooled, pooled)
    verdict = NOT if high < -MARGIN else HOLDS if low > -MARGIN and not worse else PART
    told = f"; for certain no more than that below on {', '.join(good)}" if good else ""
    told += f"; for certain more than that below on {', '.join(worse)}" if worse else ""
    told += f"; not settled by so few seeds on {', '.join(open_)}" if open_ else ""
    guessed = sorted(tasks.keys() - counted.keys())
    told += (
        f"; not counted, because full training is hardly better than a guess: {', '.join(guessed)}" if guessed else ""
    )
    return Finding(
        "Slice-wise training is about as good as full training",
        'Section 4.1: "comparable performance to full training (FT) across all settings", at times better.',
        "\n".join(lines),
        f"{verdict}: at equal epochs {pooled:+.1f} points (95 % interval {low:+.1f} to {high:+.1f}) in the mean over "
        f"{len(counted)} tasks, where {MARGIN:g} points below would be comparable{told}",
    )


def _hundred(score: float | None) -> str:
    return "" if score is None else f"{100 * score:.1f}"
