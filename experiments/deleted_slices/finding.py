"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    rows = found["rows"]
    widest = max(row["slices"] for row in rows)
    lines = [
        f"| task | {' | '.join(f'{count} deleted' for count in range(1, widest))} |",
        f"|---|{'---|' * (widest - 1)}",
    ]
    for row in rows:
        cells = [f"{-100 * (drop or 0.0):+.1f} %" for drop in row["relative_drop"][1:]]
        lines.append(f"| {row['task']} | {' | '.join(cells + [''] * (widest - 1 - len(cells)))} |")
    worst = {row["task"]: max(drop or 0.0 for drop in row["relative_drop"]) for row in rows}
    small = worst["cifar10"] < 0.05
    less = sum(worst["cifar10"] < drop for name, drop in worst.items() if name != "cifar10")
    most = less >= (len(worst) - 1) / 2
    return Finding(
        "Little is lost as slices are deleted, on images less than on texts",
        'Appendix C: on images "only a small drop in performance (<5 %)"; more on a few text tasks.',
        "\n".join(lines),
        f"{HOLDS if small and most else PART if small or most else NOT}: CIFAR-10 loses at most "
        f"{100 * worst['cifar10']:.1f} %, less than {less} of {len(worst) - 1} text tasks; the deepest slices are "
        "deleted first",
    )
