"""Training what is missing: each stage from a snapshot of the ledger, committed only if no deletion came between.

Several trainers may work on one run, in threads, processes and hosts: each claims a stage in the ledger before it
begins, so they share the work. No lock is held while one trains. Worker processes are such trainers, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256

from s3t.aftermath import EXTENDED, NOTHING_CHANGED, STAGES_KEPT, after_refusal
from s3t.core import Inventory, Stage, by_kind
from s3t.engine import EngineReport, run_in_pool, run_stages
from s3t.errors import InputError
from s3t.events import EpochEnd, Event, Progress, StageEnd, StageStart, TrainingStart, WorkStep, telling
from s3t.ledger import Snapshot, Trained
from s3t.ledger.presence import Leaving, Overtaken, Uses, Work
from s3t.recipe import Recipe
from s3t.results.changes import TrainedStage, Training
from s3t.run.orders import Addition
from s3t.run.parts import Parts
from s3t.run.placement import WorkerCount, check_workers, placements
from s3t.run.reporting import inventory_now, outage_of
from s3t.store.artifacts import Manifest, lost_stages
from s3t.store.disk import storage_errors
from s3t.wording import counted


class StageReport:
    """Progress of one stage's training: makes epochs of steps, and stops the training if a deletion overtakes it.

    `records` are those of an epoch, about.
    """

    def __init__(self, stage: Stage, *, records: int, epochs: int, progress: Progress, work: Work) -> None:
        self._stage, self._epochs, self._progress, self._work = stage, epochs, progress, work
        self._losses: list[float] = []
        self._records = 0
        self._began = self._epoch_began = time.monotonic()
        progress(StageStart(stage=stage, records=records, epochs=epochs))

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __call__(self, event: Event) -> None:
        self._progress(event)
        self._work.check()
        if isinstance(event, WorkStep):
            self._records += event.count
            if event.loss is not None:
                self._end_epoch(event.loss)

    def _end_epoch(self, loss: float) -> None:
        now = time.monotonic()
        self._losses.append(loss)
        self._progress(
            EpochEnd(
                stage=self._stage,
                epoch=len(self._losses),
                epochs=self._epochs,
                loss=loss,
                records=self._records,
                seconds=now - self._epoch_began,
            )
        )
        self._records, self._epoch_began = 0, now

    def stored(self, manifest: Manifest) -> None:
        """Report that the stage is committed."""
        end = StageEnd(
            stage=self._stage,
            losses=tuple(self._losses),
            steps=manifest.steps,
            seconds=self.seconds,
            validation=manifest.validation,
        )
        self._progress(end)


@dataclass(frozen=True)
class Trainer:
    parts: Parts

    def train_missing(self, progress: Progress, *, workers: WorkerCount, hours: float | None = None) -> Training:
        """Train and commit every missing stage, parents first; those of orders that are added meanwhile, too. What
        takes passes, and no training, is made whatever the hours.

        What is trained is kept, whatever is refused later.
        """
        check_workers(workers)
        if hours is not None and not (isinstance(hours, int | float) and 0 <= hours < math.inf):
            raise InputError("the hours", f"{hours!r} is not a finite number of at least 0")
        self.parts.check_changeable()
        until = math.inf if hours is None else time.time() + 3600 * hours
        with after_refusal(STAGES_KEPT):
            started, recipe = time.monotonic(), self.parts.recipe
            self._forget(lost_stages(self.parts.store, self.parts.ledger.snapshot().stages))
            inventory = self._inventory()
            missing = inventory.missing() if time.time() < until else inventory.missing_passes()
            places = placements(workers, missing, recipe.training)
            ends: dict[Stage, StageEnd] = {}

            def hear(event: Event) -> None:
                if isinstance(event, StageEnd):
                    ends[event.stage] = event
                progress(event)

            with telling(hear, _work_of(inventory, missing, recipe), training_steps(inventory, missing, recipe)):
                hear(TrainingStart(stages=len(missing)))
                if len(places) > 1:
                    arguments = [str(self.parts.layout.root), str(until)]
                    meanwhile = self.parts.ledger.snapshot  # raises, if another thread closes the run
                    report = run_in_pool("s3t.run.train_worker", arguments, places, progress=hear, meanwhile=meanwhile)
                else:
                    report = self._train_here(hear, until)
            self._forget(self._inventory().unwanted_readouts())
            after = inventory_now(self.parts)
            return Training(
                summaries=tuple(_summary(ends[stage]) for stage in report.trained),
                discarded=report.discarded,
                seconds=time.monotonic() - started,
                generation=after.generation,
                missing=len(after.missing()),
                depths=after.depths(),
                outage=outage_of(self.parts, after),
            )

    def extend(self, added: Addition, progress: Progress, *, workers: WorkerCount) -> Training:
        """Add orders, spares or another policy of repair, and train what is missing."""
        check_workers(workers)
        self.parts.check_changeable()
        with after_refusal(NOTHING_CHANGED):
            self.parts.check_trainable()  # else orders would be left that cannot be trained
            self.parts.orders.extend(self.parts.recipe, added, lock=self.parts.lock, progress=progress)
        with after_refusal(EXTENDED):
            return self.train_missing(progress, workers=workers)

    def _train_here(self, progress: Progress, until: float) -> EngineReport:
        """Passes come first and last, whatever the time: of models that serve, and of those that are deeper then."""

        def done(missing: Callable[[Inventory], Sequence[Stage]], until: float = math.inf) -> EngineReport:
            return run_stages(
                lambda: missing(self._inventory()), lambda stage: self._train_stage(stage, progress), until=until
            )

        passes = Inventory.missing_passes
        each = [done(passes), done(Inventory.missing, until), done(passes)]
        return EngineReport(
            trained=tuple(stage for report in each for stage in report.trained),
            discarded=sum(report.discarded for report in each),
        )

    def _inventory(self) -> Inventory:
        """The inventory, after every accepted deletion has left its slice."""
        self.parts.upkeep.erase_all()
        return self.parts.latest.inventory(self.parts.latest.snapshot())

    def _forget(self, stages: Mapping[Stage, str]) -> None:
        """Take stages out of use: those whose artifacts are gone from the store, and readouts that nothing reads."""
        if stages:
            self.parts.check_trainable()
            with self.parts.ledger.writing() as transaction:
                transaction.forget_stages(stages)

    def _train_stage(self, stage: Stage, progress: Progress) -> bool | None:
        """Train and commit one stage; False if a deletion came between, None if there is nothing to do here now."""
        self.parts.upkeep.erase_all()
        snapshot, overdue = self.parts.latest.snapshot(), self.parts.upkeep.overdue
        inventory = self.parts.latest.inventory(snapshot)
        alive, seen = inventory.alive, snapshot.seen(stage)
        if overdue is not None and any(state.pending for state in seen.values()):
            raise overdue
        if stage in alive or any(state.pending for state in seen.values()):
            return None
        if not inventory.may_begin(stage):
            return None  # another is at its parent or at the main chain, or a deletion took them
        parents = {link: alive[link] for link in stage.chain[:-1]}
        with (
            suppress(Overtaken),
            self.parts.presence.working(snapshot, Uses(stages=parents, slices=seen), leaving=Leaving.NEVER) as work,
            self.parts.presence.claimed(stage) as claimed,
        ):
            if not claimed or stage in self.parts.latest.inventory(self.parts.ledger.snapshot()).alive:
                return None  # the second: another stored it, and let go of its claim, since we looked
            report = self._report(stage, inventory, progress, work)
            return self._train_claimed(stage, snapshot, report)
        return False

    def _report(self, stage: Stage, inventory: Inventory, progress: Progress, work: Work) -> StageReport:
        epochs = self.parts.recipe.training.epochs if stage.kind == "model" else 0
        records = training_steps(inventory, [stage], self.parts.recipe) // max(1, epochs)
        return StageReport(stage, records=records, epochs=epochs, progress=progress, work=work)

    def _train_claimed(self, stage: Stage, snapshot: Snapshot, report: StageReport) -> bool | None:
        loaded = self.parts.loaded
        key, content, manifest = loaded.train(stage, snapshot, report)
        trained = Trained(
            stage=stage,
            key=key,
            manifest=sha256(manifest.to_bytes()).hexdigest(),
            session=self.parts.presence.session,
            seen=snapshot.seen(stage),
            parents={link: snapshot.stages[link] for link in stage.chain[:-1]},
            seconds=report.seconds,
        )
        stored = self._store(trained, content, manifest)
        if stored:
            report.stored(manifest)
        return stored

    def _store(self, trained: Trained, content: bytes, manifest: Manifest) -> bool | None:
        """Put an artifact, and take its stage into use. What cannot come into use is erased as what is tainted is."""
        with storage_errors(f"storing {trained.stage}"):
            with self.parts.ledger.writing() as transaction:
                if trained.stage in transaction.snapshot().stages:
                    return None  # its children may be trained already, on those very bytes
                if not transaction.announce(trained):
                    return False  # a deletion came, or this process slept until another took the claim over
            self.parts.store.put(trained.stage.shard, trained.key, content, manifest)
            with self.parts.ledger.writing() as transaction:
                return transaction.commit(trained)


def _summary(end: StageEnd) -> TrainedStage:
    return TrainedStage(
        **end.stage._asdict(),
        steps=end.steps,
        losses=end.losses,
        seconds=round(end.seconds, 3),
        validation=end.validation,
    )


def _work_of(inventory: Inventory, stages: Sequence[Stage], recipe: Recipe) -> str:
    """The size of a training in the user's terms: stages, records of the run, epochs."""
    parts = [(len(stages), "stage"), (sum(inventory.records.values()), "record")]
    stages_, records = (counted(count, noun) for count, noun in parts)
    epochs = f", {counted(recipe.training.epochs, 'epoch')} each" if recipe.method.trains else ""
    return f"training {stages_} on {records}{epochs}"


def training_steps(inventory: Inventory, stages: Sequence[Stage], recipe: Recipe) -> int:
    """Steps of the progress: records to go through, in all epochs of all stages; where some are replayed, about."""
    models, of_slices = by_kind(stages)
    own = sum(inventory.records_in(stage.shard, stage.prefix[-1:]) for stage in models)
    before = sum(inventory.records_in(stage.shard, stage.prefix[:-1]) for stage in models)
    once = sum(inventory.records[stage.places[0]] for stage in of_slices)
    return recipe.training.epochs * (own + recipe.method.replayed(before)) + once
