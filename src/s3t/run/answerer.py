"""Answers of one run: members are chosen at a generation, and their answer leaves only if they are still alive.

Shapes: M members, N inputs, C labels.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pyarrow as pa

from s3t.errors import InputError, NoLiveShardError
from s3t.ledger import Snapshot
from s3t.ledger.presence import Overtaken, Uses, Work
from s3t.prediction.answers import Answers
from s3t.prediction.members import Member, Prefixes, choose_members, parts_within
from s3t.progress import SILENT, Progress, telling
from s3t.records.ingest import IngestedInputs, ingest_inputs, ingest_labelled, ingest_windows
from s3t.records.inputs import Inputs
from s3t.records.reading import Data
from s3t.run.answers import Evaluation, Predictions
from s3t.run.likelihoods import Likelihoods
from s3t.run.parts import Parts
from s3t.stages import Stage, by_kind
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.run.workshop import Workshop


@dataclass(frozen=True)
class Answerer:
    """Answers and measures with what is alive in one run.

    A deletion that takes a stage that answers makes the answer be made again; one that takes none of them costs
    nothing, for the answer is the same with it and without it. Each of the first takes a stage, so there is an end.

    A single batch is first answered at the state of the ledger that this process read last. The ledger is then read
    once: if it has the same members, the answer leaves as the answer at that state; else it is made again.
    """

    parts: Parts

    def predict(self, inputs: Inputs, prefixes: Prefixes | None, progress: Progress) -> Predictions:
        """The ensemble's answers. Errors as `Run.predict`."""
        self.parts.recipe.task.check_answers("predict")
        return self._predict(ingest_inputs(inputs, self.parts.recipe), prefixes, progress)

    def score(self, data: Inputs, prefixes: Prefixes | None, progress: Progress) -> Likelihoods:
        """The ensemble's log-probabilities of texts. Errors as `Run.score`."""
        self.parts.recipe.task.check_answers("score")
        return Likelihoods.of(self._predict(ingest_inputs(data, self.parts.recipe), prefixes, progress))

    def predict_windows(self, source: str | Path | BinaryIO, form: str | None, *, whole: bool) -> Iterator[Predictions]:
        """Answers window by window, each at a generation of its own. Errors as `Run.predict_windows`."""
        recipe = self.parts.recipe
        recipe.task.check_answers("predict")
        size = sys.maxsize if whole else recipe.task.inputs.window_batches * recipe.prediction.batch_size
        for window in ingest_windows(source, form, recipe, size=size):
            yield self._predict(window, None, SILENT)

    def _predict(self, inputs: IngestedInputs, prefixes: Prefixes | None, progress: Progress) -> Predictions:
        recent = self.parts.latest.recent()
        if recent is not None and inputs.features.num_rows <= self.parts.recipe.prediction.batch_size:
            with suppress(Overtaken, NoLiveShardError, InputError):  # a newer state may have what this one lacks
                members = self._members(recent, prefixes)
                with self.parts.presence.working(recent, uses_of(recent, members)) as work:
                    answer = self._answer(recent, members, inputs, Watched(progress, work))
                now = self.parts.upkeep.newest()
                if uses_of(recent, members).intact_at(now) and self._members(now, prefixes) == members:
                    return replace(answer, generation=now.generation)
        while True:
            now, members = self.choose(prefixes)
            with suppress(Overtaken), self.parts.presence.answering(now, uses_of(now, members)) as work:
                return self._answer(now, members, inputs, Watched(progress, work))

    def _answer(
        self, now: Snapshot, members: Sequence[Stage], inputs: IngestedInputs, progress: Progress
    ) -> Predictions:
        return predict(self.parts.loaded.get(), self._answers, now, members, inputs, progress=progress)

    def evaluate(self, data: Data, *, per_depth: bool, progress: Progress) -> Evaluation:
        """Metrics on labelled data. Errors as `Run.evaluate`."""
        recipe, labels = self.parts.recipe, self.parts.description.labels
        rows = ingest_labelled(data, recipe, labels=labels).rows
        while True:
            now, members = self.choose(None)
            with suppress(Overtaken), self.parts.presence.answering(now, uses_of(now, members)) as work:
                return evaluate(
                    self.parts.loaded.get(),
                    self._answers,
                    now,
                    members,
                    rows,
                    per_depth=per_depth,
                    progress=Watched(progress, work),
                )

    def choose(self, prefixes: Prefixes | None) -> tuple[Snapshot, list[Stage]]:
        """The newest state of the ledger, and the stages that answer at it.

        Raises:
            NoLiveShardError: no shard can answer.
            InputError: a prefix is not alive.
        """
        now = self.parts.upkeep.newest()
        return now, self._members(now, prefixes)

    @property
    def _answers(self) -> Answers:
        return Answers.of(self.parts.recipe, self.parts.description.labels)

    def _members(self, now: Snapshot, prefixes: Prefixes | None) -> list[Stage]:
        """The stages that answer at a state of the ledger."""
        inventory, settings = self.parts.latest.inventory(now), self.parts.recipe.prediction
        return choose_members(inventory, prefixes, settings=settings, run=str(self.parts.layout.root))


def uses_of(snapshot: Snapshot, members: Sequence[Stage]) -> Uses:
    """What members compute with."""
    return Uses(stages={link: snapshot.stages[link] for stage in members for link in stage.chain})


def predict(
    workshop: Workshop,
    answers: Answers,
    snapshot: Snapshot,
    members: Sequence[Stage],
    inputs: IngestedInputs,
    *,
    progress: Progress,
) -> Predictions:
    """The ensemble's answers to inputs.

    Raises:
        IntegrityError: an artifact is not what its manifest, or its child's, says.
    """
    features = inputs.features
    counts = workshop.counts(features)
    with telling(progress, f"predicting {counted(features.num_rows, 'input')}", features.num_rows * len(members)):
        logits_MNC = workshop.logits(members, snapshot, features, steps=progress)  # noqa: N806
    parts = parts_within(members, sisa_weight=answers.sisa_weight)
    predicted, probabilities = answers.answer(logits_MNC, [stage.shard for stage in members], parts, counts)
    return Predictions(
        generation=snapshot.generation,
        members=tuple(member_of(stage, snapshot) for stage in members),
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
    per_depth: bool,
    progress: Progress,
) -> Evaluation:
    """Metrics of the ensemble, of each member, and (`per_depth`) of the ensemble cut to each depth.

    Raises:
        IntegrityError: as `predict`.
    """
    depths = range(1, _depth(members) + 1) if per_depth else ()
    cut = {depth: [stage.cut(depth) for stage in members] for depth in depths}
    wanted = sorted({*members, *itertools.chain(*cut.values())})
    with telling(progress, f"evaluating {counted(rows.num_rows, 'record')}", rows.num_rows * len(wanted)):
        logits = dict(zip(wanted, workshop.logits(wanted, snapshot, rows, steps=progress), strict=True))
    expected, counts = answers.target.expected(rows), workshop.counts(rows)

    def ensemble(stages: Collection[Stage]) -> tuple[Any, ...]:
        distinct = sorted(set(stages))
        parts = parts_within(distinct, sisa_weight=answers.sisa_weight)
        return [logits[stage] for stage in distinct], [stage.shard for stage in distinct], expected, parts, counts

    def measured(stages: Collection[Stage]) -> dict[str, Any]:
        return answers.metrics(*ensemble(stages))

    shards: dict[int, list[Stage]] = {}
    for stage in members:
        shards.setdefault(stage.shard, []).append(stage)
    per_class, confusion = answers.report(*ensemble(members))
    return Evaluation(
        generation=snapshot.generation,
        n=len(expected),
        metrics=measured(members),
        per_shard=tuple({"shard": shard, "depth": _depth(group), **measured(group)} for shard, group in shards.items()),
        per_depth=tuple({"depth": depth, **measured(stages)} for depth, stages in cut.items()),
        classes=answers.labels,
        per_class=per_class,
        confusion=confusion,
    )


def member_of(stage: Stage, snapshot: Snapshot) -> Member:
    """A stage as answers name it."""
    links = stage.chain if stage.kind == "prototypes" else (stage,)
    return Member(stage.shard, stage.prefix, ",".join(snapshot.stages[link] for link in links), stage.kind)


def _depth(members: Collection[Stage]) -> int:
    """Depth of the deepest model; 0 where prototypes answer alone."""
    return max((stage.depth for stage in by_kind(members)[0]), default=0)


class Watched:
    """Progress that also looks, at every batch, whether a deletion has overtaken the work."""

    def __init__(self, progress: Progress, work: Work) -> None:
        self._progress = progress
        self._work = work

    def start(self, task: str, total: int) -> None:
        """Hand on."""
        self._progress.start(task, total)

    def advance(self, amount: int) -> None:
        """Hand on, and stop if need be."""
        self._progress.advance(amount)
        self._work.check()

    def note(self, text: str) -> None:
        """Hand on."""
        self._progress.note(text)

    def finish(self) -> None:
        """Hand on."""
        self._progress.finish()

    def end_epoch(self, loss: float) -> None:
        """Do nothing: a replay reports no loss."""
