"""The table of the results, in Markdown, as docs/methods.md has it: python -m experiments.frontier.table"""

from __future__ import annotations

from statistics import fmean, geometric_mean

from experiments.runner import Row, results

HEAD = "| method | points, new | repaired | worst | training | year | answer |\n|---|---|---|---|---|---|---|\n"


def table(found: Row) -> str:
    """A row a system: mean points above full fine-tuning with nothing deleted, of a new system, and after the deletions
    and their repair; those of the new system on its worst task; and geometric means of costs, times those of full
    fine-tuning. All over the tasks that the system takes.
    """
    tasks = found["summary"]["tasks"].values()
    names = dict.fromkeys(name for task in tasks for name in task["systems"])
    return HEAD + "".join(_row(name, [task for task in tasks if name in task["systems"]]) for name in names)


def _row(name: str, tasks: list[Row]) -> str:
    own, full = ([task["systems"][system] for task in tasks] for system in (name, "full"))
    points = [each["apart"]["mean"] for each in own]
    cells = [
        f"{value:+.1f}" for value in (fmean(points), fmean(each["apart_repaired"]["mean"] for each in own), min(points))
    ]
    for cost in ("seconds", "year_seconds", "answer_ms"):
        times = geometric_mean(mine[cost] / theirs[cost] for mine, theirs in zip(own, full, strict=True))
        cells.append(f"{times:.2g}")
    return f"| {name} | {' | '.join(cells)} |\n"


if __name__ == "__main__":
    print(table(results("frontier")))
