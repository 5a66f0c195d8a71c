"""What an ensemble answers, and how good it is, at one snapshot of the ledger.

Shapes: M members, N inputs, C labels.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from s3t.ledger import Snapshot
from s3t.prediction.answers import Answers
from s3t.prediction.members import Member, parts_within
from s3t.progress import Progress, telling
from s3t.run.results import Evaluation, Predictions
from s3t.stages import Stage

if TYPE_CHECKING:
    from s3t.run.workshop import Workshop


def predict(
    workshop: Workshop,
    answers: Answers,
    snapshot: Snapshot,
    members: Sequence[Stage],
    features: pa.Table,
    *,
    ids: Sequence[str] | None,
    progress: Progress,
) -> Predictions:
    """The ensemble's answers to a table of features.

    Raises:
        IntegrityError: an artifact is not what its manifest, or its child's, says.
    """
    with telling(progress, "predicting", features.num_rows * len(members)):
        logits_MNC = workshop.logits(members, snapshot, features, on_batch=progress.advance)  # noqa: N806
    parts = parts_within(members, sisa_weight=answers.sisa_weight)
    label, probabilities = answers.answer(logits_MNC, [stage.shard for stage in members], parts)
    return Predictions(
        generation=snapshot.generation,
        members=tuple(_member(stage, snapshot) for stage in members),
        labels=answers.labels,
        label=label,
        probabilities=probabilities,
        logits=logits_MNC,
        ids=None if ids is None else tuple(ids),
    )


def evaluate(
    workshop: Workshop,
    answers: Answers,
    snapshot: Snapshot,
    members: Sequence[Stage],
    rows: pa.Table,
    *,
    per_depth: bool,
    progress: Progress,
) -> Evaluation:
    """Metrics of the ensemble, of each member, and (`per_depth`) of the ensemble cut to each depth.

    Raises:
        IntegrityError: as `predict`.
    """
    deeper = [link for stage in members if stage.kind == "model" and per_depth for link in stage.chain]
    wanted = sorted({*members, *deeper})
    with telling(progress, "evaluating", rows.num_rows * len(wanted)):
        logits = dict(zip(wanted, workshop.logits(wanted, snapshot, rows, on_batch=progress.advance), strict=True))
    expected = rows["label"].to_pylist()

    def measured(stages: Collection[Stage]) -> dict[str, Any]:
        chosen = sorted(set(stages))
        parts = parts_within(chosen, sisa_weight=answers.sisa_weight)
        return answers.metrics([logits[stage] for stage in chosen], [stage.shard for stage in chosen], expected, parts)

    shards: dict[int, list[Stage]] = {}
    for stage in members:
        shards.setdefault(stage.shard, []).append(stage)
    depths = range(1, _depth(members) + 1) if per_depth else ()
    cut = {depth: [_cut(stage, depth) for stage in members] for depth in depths}
    return Evaluation(
        generation=snapshot.generation,
        n=len(expected),
        metrics=measured(members),
        per_shard=tuple({"shard": shard, "depth": _depth(own), **measured(own)} for shard, own in shards.items()),
        per_depth=tuple({"depth": depth, **measured(stages)} for depth, stages in cut.items()),
    )


def _member(stage: Stage, snapshot: Snapshot) -> Member:
    links = stage.chain if stage.kind == "prototypes" else (stage,)
    return Member(stage.shard, stage.prefix, ",".join(snapshot.stages[link] for link in links), stage.kind)


def _depth(members: Collection[Stage]) -> int:
    """Of the deepest model; 0 where prototypes answer alone."""
    return max((stage.depth for stage in members if stage.kind == "model"), default=0)


def _cut(stage: Stage, depth: int) -> Stage:
    """A model's stage that has at most so many slices; prototypes as they are."""
    return stage.chain[min(depth, stage.depth) - 1] if stage.kind == "model" else stage
