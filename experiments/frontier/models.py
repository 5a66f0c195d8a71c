"""What else the stages of a run can answer with: trained heads, and heads at a depth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

import s3t
from s3t.core import Stage
from s3t.core.stages import readout
from s3t.events import silent
from s3t.ledger import Snapshot
from s3t.models.adapters import deserialize
from s3t.prediction.ridge import LinearHead, part_of, parted, solved
from s3t.tasks.aggregate import Scores

Logits = Callable[[Snapshot, Sequence[Stage], pa.Table], Scores]
"""Of members on inputs, M x N x C."""


def measures(run: s3t.Run, test: Any, logits: Logits, *, depth: int | None = None) -> dict[str, Any]:
    """Measures of the ensemble that serves, perhaps cut to a depth, with logits of one's own."""
    parts, rows = run.parts, run.parts.answerer.labelled(test)
    now, serving = parts.answerer.choose(None)
    members = [stage.cut(depth or stage.depth) for stage in serving]
    found = dict(zip(members, logits(now, members, rows), strict=True))
    return parts.answerer.measure(now, members, found, rows, per_depth=False).metrics


def trained_heads(run: s3t.Run) -> Logits:
    """With the heads that the stages were trained with."""

    def logits(now: Snapshot, members: Sequence[Stage], rows: pa.Table) -> Scores:
        models = {stage: own for stage, own in now.live.artifacts.items() if stage.kind != "readout"}
        return run.parts.loaded.get().logits(members, replace(now, live=replace(now.live, artifacts=models)), rows)

    return logits


def ridge_heads(run: s3t.Run) -> Logits:
    """With heads solved for the members that are asked, whether or not they serve. Their readouts are not stored."""
    workshop, target = run.parts.loaded.get(), run.parts.recipe.task.target
    outputs, projection = workshop.model.base.answers, workshop._projection

    def head(now: Snapshot, member: Stage) -> LinearHead:
        places = sorted(now.slices)
        left = [deserialize(workshop.train(readout(place, [member]), now)[1]) for place in places]
        parts = [
            part_of([left[number] for number in part], outputs=outputs, projection=projection)
            for part in parted([place.slice for place in places])
        ]
        return solved(parts, target=target, projection=projection)

    def logits(now: Snapshot, members: Sequence[Stage], rows: pa.Table) -> Scores:
        chains = [workshop.chain([member], now) for member in members]
        ons = [partial(workshop.ensemble.side_by_side, [chain], [0]) for chain in chains]
        heads = [[head(now, member)] for member in members]
        passes = list(zip(ons, heads, strict=True))
        return workshop._read(workshop._features_of("readout"), passes, now, rows, silent)

    return logits
