"""Verdict on our claim."""

from __future__ import annotations

from experiments.findings import HOLDS, NOT, PART, Finding
from experiments.runner import Row
from experiments.tofu.approximate import METHODS
from experiments.tofu.experiment import BEFORE, REFERENCE
from experiments.tofu.records import SETS

ALIKE = 0.05
"""P-value above which the benchmark takes a model for one that never saw the authors."""
KEPT = 0.9
"""Share of the model utility before, above which it is kept."""


def finding(found: Row) -> Finding:
    """The claim and its verdict."""
    summary = found["summary"]
    systems, stages = summary["systems"], summary["stages"].values()
    compared, different = (sum(own[name] for own in stages) for name in ("compared", "different"))
    last = SETS[-1]
    before = systems[BEFORE][last]["model_utility"]
    passing = [
        name
        for name in METHODS
        if all(
            systems[name][each]["forget_quality"] > ALIKE and systems[name][each]["model_utility"] >= KEPT * before
            for each in SETS
        )
    ]
    verdict = NOT if different or not compared else PART if passing else HOLDS
    told = "; ".join(f"{name} {systems[name][last]['forget']['rouge_l_recall']:.2f}" for name in (BEFORE, REFERENCE))
    return Finding(
        "s3t's stages are those of a run that never saw the deleted authors, byte for byte; approximate unlearning "
        "leaves traces or costs utility (TOFU; our claim)",
        f"{verdict}: {compared - different} of {compared} compared stages are equal; ROUGE-L recall of 20 "
        f"deleted authors: {told}",
    )
