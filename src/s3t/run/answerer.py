"""Answers of one run: members are chosen at a generation, and their answer leaves only if they are still alive.

Shapes: M members, N inputs, C labels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from s3t.core import Stage, by_kind
from s3t.errors import InputError, NoLiveShardError
from s3t.events import Event, Progress, silent, telling
from s3t.ledger import Snapshot
from s3t.ledger.presence import Overtaken, Uses, Work
from s3t.prediction.answers import Answers, Prefixes, choose_members, parts_within
from s3t.records.ingest import IngestedInputs, Inputs, ingest_inputs, ingest_labelled, ingest_windows
from s3t.records.reading import Data
from s3t.results.answers import Evaluation, Likelihoods, Member, Predictions
from s3t.run.parts import Parts
from s3t.run.pending import PendingAnswers
from s3t.tasks.aggregate import Scores
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.run.workshop import Workshop

T = TypeVar("T")


class State(NamedTuple):
    """A state of the ledger, the stages that answer at it, and the computation that uses them."""

    now: Snapshot
    members: list[Stage]
    work: Work
    noted: ExitStack
    """Closed, it ends the note that deletions see of the computation; `pop_all` takes it along with the result."""


Choose: TypeAlias = "Callable[[], AbstractContextManager[tuple[Snapshot, list[Stage]]]]"
"""A state of the ledger, and the stages that answer at it; within, they can be computed with."""


@dataclass(frozen=True)
class Answerer:
    """Answers and measures with what is alive in one run.

    A deletion that takes a stage that answers makes the answer be made again (`attempt`); one that takes none of them
    costs nothing, for the answer is the same with it and without it.

    A single batch is first answered at the state of the ledger that this process read last. The ledger is then read
    once: if it has the same members, the answer leaves as the answer at that state; else it is made again.
    """

    parts: Parts

    def predict(self, inputs: IngestedInputs, prefixes: Prefixes | None, progress: Progress) -> Predictions:
        recent = self.parts.latest.recent()
        if recent is not None and inputs.features.num_rows <= self.parts.recipe.prediction.batch_size:
            with suppress(Overtaken, NoLiveShardError, InputError):  # a newer state may have what this one lacks
                members = self._members(recent, prefixes)
                with self.parts.presence.working(recent, uses_of(recent, members)) as work:
                    answer = self._answer(State(recent, members, work, ExitStack()), inputs, progress)
                now = self.parts.upkeep.erase_due()
                if now.new_labels != recent.new_labels:
                    raise Overtaken
                if uses_of(recent, members).intact_at(now) and self._members(now, prefixes) == members:
                    return replace(answer, generation=now.generation)
        return self.computed(prefixes, lambda state: self._answer(state, inputs, progress))

    def score(self, data: Inputs, prefixes: Prefixes | None, progress: Progress) -> Likelihoods:
        self.parts.recipe.task.check_answers("score")
        return Likelihoods.of(self.predict(ingest_inputs(data, self.parts.recipe), prefixes, progress))

    def predict_windows(self, source: str | Path | BinaryIO, form: str | None, *, whole: bool) -> Iterator[Predictions]:
        recipe = self.parts.recipe
        recipe.task.check_answers("predict")
        size = sys.maxsize if whole else recipe.task.inputs.window_batches * recipe.prediction.batch_size
        for window in ingest_windows(source, form, recipe, size=size):
            yield self.predict(window, None, silent)

    def attempt(self, choose: Choose, compute: Callable[[State], T], *, held: bool = False) -> T:
        """Compute something at one state of the ledger; anew as long as a deletion takes a stage that it uses.

        Each takes a stage, so there is an end. With `held`, deletions wait until `compute` lets go of `State.noted`;
        it confirms the result itself, which leaves later.
        """
        note = self.parts.presence.pending if held else self.parts.presence.answering
        while True:
            with suppress(Overtaken), choose() as (now, members), ExitStack() as noted:
                work = noted.enter_context(note(now, uses_of(now, members)))
                return compute(State(now, members, work, noted))

    def computed(self, prefixes: Prefixes | None, compute: Callable[[State], T], *, within: State | None = None) -> T:
        """Attempt something with the members of `prefixes`; without them, the deepest that are alive answer.

        `compute` watches for deletions, or is short. `within` is the state of an outer computation, which then has to
        begin anew as a whole (Overtaken).
        """
        if within is not None:
            within.work.check()
            return compute(within)
        return self.attempt(lambda: nullcontext(self.choose(prefixes)), compute)

    def checked(self, inputs: Inputs) -> IngestedInputs:
        self.parts.recipe.task.check_answers("predict")
        return ingest_inputs(inputs, self.parts.recipe)

    def hold(
        self,
        requests: Sequence[Inputs | IngestedInputs],
        *,
        choose: Choose | None = None,
        computer: Computer | None = None,
    ) -> PendingAnswers:
        """As `Run.hold`; an engine elsewhere chooses and computes where they are given."""
        checked = [each if isinstance(each, IngestedInputs) else self.checked(each) for each in requests]
        together = IngestedInputs(pa.concat_tables([each.features for each in checked]), None, range(0))

        def compute(state: State) -> PendingAnswers:
            answer = self._answer(state, together, silent, computer)
            state.work.confirm()
            ends = pairwise(accumulate((each.features.num_rows for each in checked), initial=0))
            predictions = tuple(
                replace(answer.part(*part), ids=None if each.ids is None else tuple(each.ids), places=each.places)
                for each, part in zip(checked, ends, strict=True)
            )
            return PendingAnswers(state.work, self.parts.presence, state.noted.pop_all(), predictions)

        return self.attempt(choose or (lambda: nullcontext(self.choose_now())), compute, held=True)

    def _answer(
        self, state: State, inputs: IngestedInputs, progress: Progress, computer: Computer | None = None
    ) -> Predictions:
        now, members, work, _ = state
        features, computer, answers = inputs.features, computer or self.workshop, self._answers(now)
        steps = features.num_rows * len(set(now.readers(members).values()))
        with telling(progress, f"predicting {counted(features.num_rows, 'input')}", steps):
            counts = computer.counts(features)
            logits_MNC = computer.logits(members, now, features, progress=watched(progress, work))  # noqa: N806
            parts = parts_within(members, sisa_weight=answers.settings.sisa_weight)
            predicted, probabilities = answers.answer(logits_MNC, [stage.shard for stage in members], parts, counts)
            return Predictions(
                generation=now.generation,
                members=members_of(members, now),
                target=answers.target,
                classes=answers.labels,
                predicted=predicted,
                probabilities=probabilities,
                logits=logits_MNC,
                counts=counts,
                cut=() if answers.target.over_vocabulary else computer.cut(features),
                ids=None if inputs.ids is None else tuple(inputs.ids),
                places=inputs.places,
            )

    def labelled(self, data: Data) -> pa.Table:
        """Features and labels of data; or all of its problems."""
        labels = self.parts.labels_at(self.parts.latest.snapshot())
        return ingest_labelled(data, self.parts.recipe, labels=labels).rows

    def evaluate(self, state: State, rows: pa.Table, *, per_depth: bool, progress: Progress) -> Evaluation:
        now, members, work, _ = state
        deeper = [link for stage in by_kind(members)[0] for link in stage.chain] if per_depth else []
        wanted = sorted({*members, *deeper})
        steps = rows.num_rows * len(set(now.readers(wanted).values()))
        with telling(progress, f"evaluating {counted(rows.num_rows, 'record')}", steps):
            scores = self.workshop.logits(wanted, now, rows, progress=watched(progress, work))
            return self.measure(now, members, dict(zip(wanted, scores, strict=True)), rows, per_depth=per_depth)

    def noticed(self, found: Evaluation, rows: pa.Table) -> Evaluation:
        """An evaluation, with a notice of the records that are cut."""
        if not (longer := sum(self.workshop.cut(rows))):
            return found
        notice = f"{longer:,} of {counted(rows.num_rows, 'record')} have more tokens than max_length and are cut there"
        return replace(found, notices=(*found.notices, notice))

    def measure(
        self,
        now: Snapshot,
        members: Sequence[Stage],
        logits: Mapping[Stage, Scores],
        rows: pa.Table,
        *,
        per_depth: bool,
    ) -> Evaluation:
        """Metrics of the ensemble, of each shard that answers alone, and (`per_depth`) of the ensemble cut to depths.

        `logits` has those of the members, and with `per_depth` of all their links, each N x C.
        """
        answers, counts = self._answers(now), self.workshop.counts(rows)
        expected = answers.target.expected(rows)

        def answered(stages: Collection[Stage]) -> tuple[Any, ...]:
            distinct = sorted(set(stages))
            parts = parts_within(distinct, sisa_weight=answers.settings.sisa_weight)
            stacked = np.stack([logits[stage] for stage in distinct])
            return answers.answer(stacked, [stage.shard for stage in distinct], parts, counts)[0]

        def measured(stages: Collection[Stage]) -> dict[str, Any]:
            return answers.target.metrics(answered(stages), expected, answers.labels)

        shards: dict[int, list[Stage]] = {}
        readers = now.readers(members)
        alone = [stage for stage, models in readers.items() if models == (stage,)]
        for stage in alone:
            shards.setdefault(stage.shard, []).append(stage)
        of_mean = any(len(models) > 1 for models in readers.values())  # which has no depth
        depths = range(1, _depth(by_kind(members)[0]) + 1) if per_depth and not of_mean else ()
        cut = {depth: [stage.cut(depth) for stage in members] for depth in depths}
        per_class, confusion = answers.target.report(answered(members), expected, answers.labels)
        notices: list[str] = []
        if not answers.target.over_vocabulary:
            notices += answers.doubts(alone, {stage: answered([stage]) for stage in logits}, expected)
        if per_depth and of_mean:
            notices.append("the shards' mean answers, which has no depths")
        if len(depths) > 1 and now.readouts:
            notices.append(
                "cut to a depth, models answer with trained heads; one that falls back so far gets a solved head"
            )
        return Evaluation(
            generation=now.generation,
            n=len(expected),
            metrics=measured(members),
            per_shard=tuple(
                {"shard": shard, "depth": _depth(group), **measured(group)} for shard, group in shards.items()
            ),
            per_depth=tuple({"depth": depth, **measured(stages)} for depth, stages in cut.items()),
            notices=tuple(notices),
            classes=answers.labels,
            per_class=per_class,
            confusion=confusion,
        )

    def choose(self, prefixes: Prefixes | None) -> tuple[Snapshot, list[Stage]]:
        """Erase what is due; the state of the ledger then, and the stages that answer at it."""
        now = self.parts.upkeep.erase_due()
        return now, self._members(now, prefixes)

    def choose_now(self) -> tuple[Snapshot, list[Stage]]:
        """As `choose`, but it erases nothing: a server's answers do not wait for that."""
        now = self.parts.latest.snapshot()
        self.parts.upkeep.forget_stale(now)
        return now, self._members(now, None)

    @property
    def workshop(self) -> Workshop:
        """The run's base model, loaded when it is first needed."""
        return self.parts.loaded.get()

    def _answers(self, now: Snapshot) -> Answers:
        recipe = self.parts.recipe
        return Answers(target=recipe.task.target, labels=self.parts.labels_at(now), settings=recipe.prediction)

    def _members(self, now: Snapshot, prefixes: Prefixes | None) -> list[Stage]:
        inventory, settings = self.parts.latest.answering(now), self.parts.recipe.prediction
        return choose_members(inventory, prefixes, settings=settings, run=str(self.parts.layout.root))


def uses_of(snapshot: Snapshot, members: Sequence[Stage]) -> Uses:
    """Live stages whose tensors the members compute with."""
    readers = set(snapshot.readers(members).values())
    models = (link for group in readers for stage in group for link in stage.chain)
    links = (*models, *(link for group in readers for link in snapshot.heads.get(group, ())))
    return Uses(stages={link: snapshot.stages[link] for link in links})


class Computer(Protocol):
    """Source of logits, up to a constant an input: the workshop, or an engine elsewhere."""

    def counts(self, rows: pa.Table) -> Sequence[int] | None: ...

    def cut(self, rows: pa.Table) -> Sequence[bool]: ...

    def logits(
        self, stages: Sequence[Stage], snapshot: Snapshot, inputs: pa.Table, progress: Progress = silent
    ) -> Scores: ...


def members_of(stages: Sequence[Stage], snapshot: Snapshot) -> tuple[Member, ...]:
    readers = snapshot.readers(by_kind(stages)[0])

    def member(stage: Stage) -> Member:
        links = (*stage.chain[-1:], *snapshot.heads.get(readers[stage], ())) if stage in readers else stage.chain
        keys = ",".join(snapshot.stages[link] for link in links)
        return Member(stage.shard, stage.prefix, keys, stage.kind, stage.seen)

    return tuple(map(member, stages))


def _depth(members: Collection[Stage]) -> int:
    """Depth of the deepest model, or, where none is trained, slices of a head; 0 where prototypes answer alone."""
    return max((stage.depth for stage in members if stage.kind != "prototypes"), default=0)


def watched(progress: Progress, work: Work) -> Progress:
    """Hands events on, and stops the computation, at a step, when a deletion has overtaken it."""

    def hear(event: Event) -> None:
        progress(event)
        work.check()

    return hear
