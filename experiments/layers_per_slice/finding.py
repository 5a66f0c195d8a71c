"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary = found["summary"]
    shapes = [f"{layers}x{slices}" for layers, slices in found["config"]["shapes"]]
    lines = [f"| task | {' | '.join(shapes)} |", f"|---|{'---|' * len(shapes)}"]
    for name, row in summary.items():
        lines.append(f"| {name} | {' | '.join(percent(row[shape]['score']) for shape in shapes)} |")
    lines.append("\nColumns are layers a slice times slices.")
    told, held = [], 0
    for name, row in summary.items():
        best = max(("1x2", "1x3", "1x4"), key=lambda shape: float(row[shape]["score"]))
        noise = max(row[shape]["spread"] or 0.0 for shape in ("1x1", best, "1x6"))
        helped = row[best]["score"] - row["1x1"]["score"] > noise
        hurt = row[best]["score"] - row["1x6"]["score"] > noise
        held += helped + hurt
        told.append(
            f"on {name} one layer a slice gives {percent(row['1x1']['score'])} with one slice, "
            f"{percent(row[best]['score'])} with {best[-1]}, {percent(row['1x6']['score'])} with six; six layers at "
            f"once {percent(row['6x1']['score'])}"
        )
    verdict = HOLDS if held == 2 * len(summary) else PART if held else NOT
    return Finding(
        "With few layers a slice, more slices first help and then hurt",
        "Appendix C: on RTE poor with one layer a slice; better with more slices at first, worse with too many.",
        "\n".join(lines),
        f"{verdict} (differences beyond the spread of the seeds): {'; '.join(told)}",
    )
