"""What the results say of the paper's claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding, percent
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim, what was found, and whether it holds."""
    summary, replays = found["summary"], found["config"]["replays"]
    lines = [
        f"| task, direction | {' | '.join(f'{replay:g} seen again' for replay in replays)} |",
        f"|---|{'---|' * len(replays)}",
    ]
    for name, designs in summary.items():
        for direction in found["config"]["directions"]:
            cells = (percent(designs[f"{direction}, {replay:g}"]["accuracy"]) for replay in replays)
            lines.append(f"| {name}, {direction} | {' | '.join(cells)} |")
    down = all(_above(designs["top-down, 1"], designs["bottom-up, 1"]) for designs in summary.values())
    again = all(_above(designs["top-down, 1"], designs["top-down, 0"]) for designs in summary.values())
    return Finding(
        "Top-down and cumulative training is the better design",
        "Appendix B: bottom-up training did not converge; a stage that sees its own slice alone converges worse.",
        "\n".join(lines),
        f"{HOLDS if down and again else PART if down or again else NOT}: top-down is "
        f"{'better on every task' if down else 'not better on every task'}, seeing all again is "
        f"{'better on every task' if again else 'not better on every task'}",
    )


def _above(one: Row, other: Row) -> bool:
    """Whether its accuracy is above another's by more than the seeds differ."""
    return bool(one["accuracy"] - other["accuracy"] > max(one["spread"] or 0.0, other["spread"] or 0.0))
