"""The table of the results, in Markdown, as docs/methods.md has it: python -m experiments.frontier.table"""

from __future__ import annotations

from experiments.runner import Row, results

HEAD = "| method | new | worst | 20 % gone | repaired | year | answer |\n|---|---|---|---|---|---|---|\n"


def table(found: Row, *, leave_out: str = "none") -> str:
    """A row a system whose name does not have `leave_out` in it: points above full fine-tuning with nothing deleted, of
    a new system in the mean and on its worst task, in the mean after the deletions (none if it answers nothing on some
    task), and after their repair; costs of a year and of an answer, times those of full fine-tuning.
    """
    told = found["summary"]
    tasks = [task["systems"] for task in told["tasks"].values()]
    worst = {name: min(task[name]["apart"]["mean"] for task in tasks if name in task) for name in told["costs"]}

    def gone(name: str) -> str:
        points = told["apart_gone"][name]
        return "none" if points is None else f"{points['mean']:+.1f}"

    return HEAD + "".join(
        f"| {name} | {told['apart'][name]['mean']:+.1f} | {worst[name]:+.1f} "
        f"| {gone(name)} | {told['apart_repaired'][name]['mean']:+.1f} "
        f"| {costs['year_seconds']:.2f} | {costs['answer_ms']:.2f} |\n"
        for name, costs in told["costs"].items()
        if leave_out not in name
    )


if __name__ == "__main__":
    print(table(results("frontier")))
