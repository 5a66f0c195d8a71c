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
from s3t.records.ingest import IngestedInputs
from s3t.run.answers import Evaluation, Predictions
from s3t.stages import Stage
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.run.workshop import Workshop


def predict(
    workshop: Workshop,
    answers: Answers,
    snapshot: Snapshot,
    members: Sequence[Stage],
    inputs: IngestedInputs,
    *,
    counts: Sequence[int] | None,
    progress: Progress,
) -> Predictions:
    """The ensemble's answers to inputs; `counts` says how many each has, None: one.

    Raises:
        IntegrityError: an artifact is not what its manifest, or its child's, says.
    """
    features = inputs.features
    with telling(progress, f"predicting {counted(features.num_rows, 'input')}", features.num_rows * len(members)):
        logits_MNC = workshop.logits(members, snapshot, features, on_batch=progress.advance)  # noqa: N806
    parts = parts_within(members, sisa_weight=answers.sisa_weight)
    predicted, probabilities = answers.answer(logits_MNC, [stage.shard for stage in members], parts, counts)
    return Predictions(
        generation=snapshot.generation,
        members=tuple(_member(stage, snapshot) for stage in members),
        target=answers.target,
        classes=answers.labels,
        predicted=predicted,
        probabilities=probabilities,
        logits=logits_MNC,
        counts=counts,
        ids=None if inputs.ids is None else tuple(inputs.ids),
        places=inputs.places,
    )


def evaluate(
    workshop: Workshop,
    answers: Answers,
    snapshot: Snapshot,
    members: Sequence[Stage],
    rows: pa.Table,
    *,
    counts: Sequence[int] | None,
    per_depth: bool,
    progress: Progress,
) -> Evaluation:
    """Metrics of the ensemble, of each member, and (`per_depth`) of the ensemble cut to each depth.

    `counts` says how many answers each record has, None: one.

    Raises:
        IntegrityError: as `predict`.
    """
    deeper = [link for stage in members if stage.kind == "model" and per_depth for link in stage.chain]
    wanted = sorted({*members, *deeper})
    with telling(progress, f"evaluating {counted(rows.num_rows, 'record')}", rows.num_rows * len(wanted)):
        logits = dict(zip(wanted, workshop.logits(wanted, snapshot, rows, on_batch=progress.advance), strict=True))
    expected = rows["label"].to_pylist()

    def ensemble(stages: Collection[Stage]) -> tuple[Any, ...]:
        chosen = sorted(set(stages))
        parts = parts_within(chosen, sisa_weight=answers.sisa_weight)
        return [logits[stage] for stage in chosen], [stage.shard for stage in chosen], expected, parts, counts

    def measured(stages: Collection[Stage]) -> dict[str, Any]:
        return answers.metrics(*ensemble(stages))

    shards: dict[int, list[Stage]] = {}
    for stage in members:
        shards.setdefault(stage.shard, []).append(stage)
    depths = range(1, _depth(members) + 1) if per_depth else ()
    cut = {depth: [_cut(stage, depth) for stage in members] for depth in depths}
    per_class, confusion = answers.report(*ensemble(members))
    return Evaluation(
        generation=snapshot.generation,
        n=len(expected),
        metrics=measured(members),
        per_shard=tuple({"shard": shard, "depth": _depth(own), **measured(own)} for shard, own in shards.items()),
        per_depth=tuple({"depth": depth, **measured(stages)} for depth, stages in cut.items()),
        classes=answers.labels,
        per_class=per_class,
        confusion=confusion,
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
