"""Verdict on the paper's claim."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.chance import CLEARLY
from experiments.design_ablation.experiment import AS_MANY
from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary, config = found["summary"], found["config"]
    shares = [*config["replays"], *([AS_MANY] if config["as_many_passes"] else [])]
    down = {name: _above(own["top-down, 1.0"], own["bottom-up, 1.0"]) for name, own in summary.items()}
    again = {name: _above(own["top-down, 1.0"], own[f"top-down, {shares[-1]}"]) for name, own in summary.items()}
    failed = [name for name, own in summary.items() if own["bottom-up, 1.0"]["accuracy"] < own["guess"] + CLEARLY]
    all_better, some = all(down.values()) and all(again.values()), any(again.values()) or any(down.values())
    return Finding(
        "Top-down and cumulative training is the better design",
        f"{HOLDS if all_better else PART if some else NOT}: top-down is "
        f"better than bottom-up on {_those(down)} (bottom-up "
        f"{'does not converge on ' + ', '.join(failed) if failed else 'converges on all'}); seeing all again is "
        f"better than as many records of the own slice on {_those(again)}",
    )


def _above(one: Row, other: Row) -> bool:
    """Whether its accuracy is above another's by more than the seeds differ."""
    return bool(one["accuracy"] - other["accuracy"] > max(one["spread"] or 0.0, other["spread"] or 0.0))


def _those(found: Mapping[str, bool]) -> str:
    return ", ".join(name for name, own in found.items() if own) or "no task"
