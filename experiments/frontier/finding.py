"""Verdict on our own claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row


def finding(found: Row) -> Finding:
    """The best exact method of each task, chosen by the records that it is measured on, against full fine-tuning."""
    best = {name: max(_exact(task), key=lambda pair: pair[1]) for name, task in found["summary"]["tasks"].items()}
    worse = {name: points for name, (_, points) in best.items() if points < 0}
    verdict = HOLDS if not worse else NOT if len(worse) == len(best) else PART
    told = ", ".join(f"{name} {points:+.1f}" for name, points in worse.items())
    return Finding(
        "Some exact method answers as well as full fine-tuning for as many epochs (our claim)",
        f"{verdict}: on {len(best) - len(worse)} of {len(best)} tasks; the best one's points on the others are {told}",
    )


def _exact(task: Row) -> list[tuple[str, float]]:
    """Systems that lose no more than their part to a deletion, and their points above full fine-tuning."""
    return [(system, own["apart"]["mean"]) for system, own in task["systems"].items() if not system.startswith("full")]
