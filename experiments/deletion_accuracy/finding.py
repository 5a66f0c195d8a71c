"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    systems, full = found["summary"]["systems"], found["summary"]["full"]
    lines = ["| system | no deletion | 20 deletions | 40 deletions | half are dead after |", "|---|---|---|---|---|"]
    for name, row in systems.items():
        cells = [percent(row.get(key)) for key in ("at_start", "after_20", "after_40")]
        half = f"{row['half_dead_after']} deletions" if row["half_dead_after"] else "more than were made"
        lines.append(f"| {name} | {' | '.join(cells)} | {half} |")
    told = ", ".join(f"{percent(row['accuracy'])} after {count}" for count, row in full.items())
    lines.append(f"\nRetrained in full every time: {told} deletions.")
    few = next(row for name, row in systems.items() if name.startswith("s3t, B=4"))  # the paper's orders
    most = next(row for name, row in systems.items() if name.startswith("s3t, B=24"))
    ends = {name: systems[name]["half_dead_after"] or 10**9 for name in ("sisa", "protosisa")}
    outlasts = all((few["half_dead_after"] or 10**9) > end for end in ends.values())
    points = [f"after_{count}" for count in (10, 20, 40, 80)]
    better = all(few[at] > systems[name][at] for name in ends for at in points if at in few and at in systems[name])
    apart = max(most[at] - few[at] for at in points if at in few and at in most)
    verdict = HOLDS if outlasts and better and apart < 0.02 else PART if outlasts or better else NOT
    return Finding(
        "S3T handles more deletions than SISA and ProtoSISA, and answers better meanwhile",
        "Section 5.3: SISA and ProtoSISA end after about 40 deletions; S3T goes on, and B=4 is close to B=24.",
        "\n".join(lines),
        f"{verdict}: at B=4 half are dead after {few['half_dead_after']} deletions, of SISA after "
        f"{systems['sisa']['half_dead_after']}; it is {'better' if better else 'not always better'} than both where "
        f"they answer, and at most {100 * apart:.1f} points below B=24",
    )
