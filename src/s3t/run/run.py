"""The library's front door: `Run`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from filelock import FileLock

from s3t.audit.audit import Auditor
from s3t.deletion.deleter import Deleter
from s3t.errors import IntegrityError, IsolationError, S3TError, StorageError, TrainingError
from s3t.inventory import Inventory
from s3t.ledger import Ledger, Snapshot
from s3t.models.source import model_digest, model_folder
from s3t.planning import Forecast
from s3t.prediction.answers import Answers
from s3t.prediction.members import choose_members
from s3t.progress import Progress, Silent, telling
from s3t.recipe import Recipe, recipe_from
from s3t.records import Data, Inputs, ingest_inputs, requested
from s3t.records.ingest import ingest_labelled
from s3t.run.answering import evaluate, predict
from s3t.run.creation import create_run
from s3t.run.layout import Layout, read_layout
from s3t.run.orders import Orders
from s3t.run.results import AuditReport, DeletionReport, Evaluation, Predictions, Status, TrainReport
from s3t.run.training import Trainer
from s3t.sequences import Order
from s3t.stages import KeyInputs, Stage, training_part
from s3t.store import LocalStore, Manifest

if TYPE_CHECKING:
    from s3t.run.workshop import Workshop

Answer = TypeVar("Answer")


class Run:
    """One trained system in a folder. Use `Run.create` or `Run.open`.

    May be used as a context manager, which closes the ledger. Opening finishes deletions that a crash interrupted.
    """

    def __init__(self, path: Path) -> None:
        self._layout = Layout(path)
        self._recipe, self._description, self._secret = read_layout(self._layout)
        self._key_inputs = KeyInputs(
            secret=self._secret,
            base_digest=self._description.base_digest,
            training_part=training_part(self._recipe, labels=self._description.labels),
        )
        self._orders = Orders(self._layout, self._description)
        self._answers = Answers(labels=self._description.labels, aggregation=self._recipe.prediction.aggregation)
        self._ledger = Ledger.open(self._layout.ledger)
        self._store = LocalStore(self._layout.artifacts, tmp=self._layout.tmp)
        self._loaded: Workshop | None = None
        self._overdue: S3TError | None = None  # why an accepted deletion is not erased yet
        self._deleter = Deleter(
            ledger=self._ledger,
            store=self._store,
            secret=self._secret,
            slices=self._layout.slices,
            tmp=self._layout.tmp,
            lock=FileLock(self._layout.lock, mode=0o600),
            orders=self._orders.now,
            forget=lambda places: self._loaded.forget(places) if self._loaded else None,
        )
        self._trainer = Trainer(
            ledger=self._ledger,
            store=self._store,
            epochs=self._recipe.training.epochs,
            snapshot=self._snapshot,
            inventory=self._inventory,
            overdue=lambda: self._overdue,
            train=self._train_in_workshop,
        )

    @classmethod
    def create(cls, path: str | Path, *, recipe: Recipe | Mapping[str, Any] | str | Path, data: Data) -> Run:
        """Make a run: check everything, partition the records, draw the orders. Trains nothing yet.

        Args:
            path: a folder that does not exist.
            recipe: a `Recipe`, a mapping of its fields, or a YAML file.
            data: a CSV, JSON lines or Parquet file, a `datasets.Dataset`, a pandas frame or an arrow table.

        Raises:
            InputError: with all problems of recipe and data; no folder is left.
            StorageError: the disk refused; no folder is left.
        """
        name = str(recipe) if isinstance(recipe, str | Path) else "the recipe"
        create_run(Path(path), recipe_from(recipe), data, recipe_name=name)
        return cls.open(path)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run, and finish what a crash left undone.

        Raises:
            RunFolderError: the folder is no run, or one of another format.
        """
        run = cls(Path(path))
        try:
            run._snapshot()
            run._deleter.sweep()
        except BaseException:
            run.close()
            raise
        return run

    def close(self) -> None:
        """Release the ledger and the model."""
        self._ledger.close()
        self._loaded = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The run folder."""
        return self._layout.root

    @property
    def recipe(self) -> Recipe:
        """The recipe, without its salt, with the budget that the run has now."""
        sequences = self._recipe.sequences.model_copy(update={"budget": len(self._orders.now()[0])})
        return self._recipe.model_copy(update={"sequences": sequences})

    @property
    def labels(self) -> tuple[str, ...]:
        """The label set in the head's order; empty for a regression."""
        return self._description.labels

    def status(self) -> Status:
        """What is alive and what serves."""
        return self._status(self._inventory(self._snapshot()))

    def forecast(self) -> Forecast | None:
        """How many more deletions the run is expected to take, from its present state, without repair; None if it
        cannot be computed."""
        return self.status().forecast

    def train(self, *, progress: Progress | None = None) -> TrainReport:
        """Train every missing stage. May be killed and run again: what is stored is not trained twice.

        Raises:
            IsolationError: a stage touched tensors that are not its own.
            IntegrityError: the base model, a slice or an artifact is not what it should be.
            StorageError: the disk refused.
        """
        started = time.monotonic()
        report = self._trainer.train_missing(progress or Silent())
        return TrainReport(
            stages=tuple((stage.shard, stage.prefix) for stage in report.trained),
            discarded=report.discarded,
            seconds=time.monotonic() - started,
            status=self.status(),
        )

    def repair(self, *, progress: Progress | None = None) -> TrainReport:
        """Train what deletions cost: only the stages that are missing, each from its surviving parent.

        Afterwards the artifacts are, byte for byte, those of a run that never saw the deleted records.
        """
        return self.train(progress=progress)

    def extend(self, *, budget: int, progress: Progress | None = None) -> TrainReport:
        """Add orders to every shard, behind the old ones, and train every stage that is missing.

        The new orders are on the disk before training begins: if that is killed, `train` goes on.

        Args:
            budget: B, orders a shard; more than now, at most L!.
            progress: hears of training.

        Raises:
            InputError: the budget is not above the present one, or exceeds L!; nothing has changed.
            StorageError: the disk refused.
        """
        self._orders.extend(self._recipe, budget=budget, lock=self._deleter.holding_off)
        return self.train(progress=progress)

    def predict(
        self,
        inputs: Inputs,
        *,
        prefixes: Mapping[int, Order] | None = None,
        progress: Progress | None = None,
    ) -> Predictions:
        """Answer with the ensemble of every shard's serving prefix.

        Args:
            inputs: data with the feature columns, a list of texts, or a list of rows.
            prefixes: for each shard that shall answer, a live prefix, instead of those that serve.
            progress: hears of every batch.

        Raises:
            NoLiveShardError: no shard can answer.
            InputError: the inputs do not fit the recipe, or a prefix is not alive.
        """
        features, ids = ingest_inputs(inputs, self._recipe)

        def compute(snapshot: Snapshot) -> Predictions:
            members = self._members(snapshot, prefixes)
            return predict(
                self._workshop(), self._answers, snapshot, members, features, ids=ids, progress=progress or Silent()
            )

        return self._at_one_generation(compute)

    def evaluate(self, data: Data, *, per_depth: bool = True, progress: Progress | None = None) -> Evaluation:
        """How good the ensemble, each member, and the ensemble cut to each depth are on labelled data.

        Args:
            data: with features and labels; ids are not looked at.
            per_depth: also evaluate shallower ensembles, at the cost of one pass a live block.
            progress: hears of every batch.

        Raises:
            NoLiveShardError: no shard can answer.
            DataError: the data does not fit the recipe.
        """
        records = ingest_labelled(data, self._recipe)

        def compute(snapshot: Snapshot) -> Evaluation:
            members = self._members(snapshot, None)
            return evaluate(
                self._workshop(),
                self._answers,
                snapshot,
                members,
                records.rows,
                per_depth=per_depth,
                progress=progress or Silent(),
            )

        return self._at_one_generation(compute)

    def delete(
        self,
        *,
        records: Sequence[str | int] = (),
        subjects: Sequence[str | int] = (),
        dry_run: bool = False,
    ) -> DeletionReport:
        """Delete records by id and by subject. Durable when it returns; serves on without them at once.

        Names that are gone already or that the run has never held are reported and change nothing.

        Args:
            records: record ids.
            subjects: subjects; all their records go.
            dry_run: say what would happen, and do nothing.

        Raises:
            InputError: a string instead of a list, or an empty name; nothing has changed.
            StorageError: the disk refused. If the message says that the records are out of use, the deletion is
                accepted and opening the run again finishes it; otherwise nothing has changed.
        """
        outcome = self._deleter.delete(
            records=requested("records", records),
            subjects=requested("subjects", subjects),
            dry_run=dry_run,
        )
        return DeletionReport(
            dry_run=dry_run,
            deleted=sum(row.copies for row in outcome.rows),
            already=outcome.already,
            unknown=outcome.unknown,
            slices=tuple(sorted(outcome.plan.losses)),
            stages_lost=len(outcome.plan.tainted),
            status=self._status(outcome.inventory.keeping(self._store.present())),
        )

    def audit(self, *, replay: int = 0, seed: int | None = None, progress: Progress | None = None) -> AuditReport:
        """Recompute the key of every live stage from today's slices, check bytes and chains; train some again.

        Args:
            replay: how many live stages to train again and compare byte for byte.
            seed: chooses which; by default nobody can foresee it.
            progress: hears of replayed training.
        """
        progress = progress or Silent()
        auditor = Auditor(
            slices=self._layout.slices,
            secret=self._secret,
            store=self._store,
            inputs=self._key_inputs,
            base_digest=lambda: model_digest(model_folder(self._recipe.base_model, revision=self._recipe.revision)),
            retrain=self._train_in_workshop,
        )
        snapshot = self._snapshot()
        mismatches = auditor.check(snapshot)
        if mismatches:  # perhaps a deletion or a trainer was at work: once more, while neither is
            with self._deleter.holding_off(), self._ledger.writing() as transaction:
                snapshot = transaction.snapshot()
                mismatches = auditor.check(snapshot)
        stages = auditor.sample(snapshot, replay, seed)
        with telling(progress, "replaying", self._trainer.cost(self._inventory(snapshot), stages)):
            for stage in stages:
                progress.note(f"replaying {stage}")
                mismatches += auditor.replay(stage, snapshot, on_step=progress.advance)
        return AuditReport(
            generation=snapshot.generation,
            checked=len(snapshot.stages),
            replayed=tuple((stage.shard, stage.prefix) for stage in stages),
            mismatches=tuple(mismatches),
        )

    def _at_one_generation(self, compute: Callable[[Snapshot], Answer]) -> Answer:
        """What `compute` makes of a snapshot that no deletion has overtaken when it is done."""
        for _ in range(3):
            snapshot = self._snapshot()
            try:
                answer = compute(snapshot)
            except IntegrityError:
                if self._ledger.generation() == snapshot.generation:
                    raise
                continue  # an artifact was erased under our hands
            if self._ledger.generation() == snapshot.generation:
                return answer
        with self._deleter.holding_off():
            return compute(self._snapshot())

    def _snapshot(self) -> Snapshot:
        """The ledger now, after what is accepted has been erased.

        If it cannot be erased (a full disk), what is alive serves on without it: the status warns.
        """
        try:
            self._deleter.finish()
            self._overdue = None
        except (StorageError, IntegrityError) as error:
            self._overdue = error
        snapshot = self._ledger.snapshot()
        if self._loaded is not None:
            self._loaded.forget_stale(snapshot)
        return snapshot

    def _members(self, snapshot: Snapshot, prefixes: Mapping[int, Order] | None) -> list[Stage]:
        return choose_members(self._inventory(snapshot), prefixes, run=str(self.path))

    def _inventory(self, snapshot: Snapshot) -> Inventory:
        """What is alive: committed, untainted, and in the store."""
        return snapshot.inventory(self._orders.now()).keeping(self._store.present())

    def _status(self, inventory: Inventory) -> Status:
        return Status(
            inventory=inventory,
            gaps=self._description.gaps,
            warnings=(*self._description.warnings, *([str(self._overdue)] if self._overdue else [])),
            missing=len(inventory.missing()),
            recipe=self.recipe,
        )

    def _workshop(self) -> Workshop:
        if self._loaded is None:
            from s3t.run.workshop import Workshop  # here: it imports torch

            self._loaded = Workshop(
                slices=self._layout.slices,
                recipe=self._recipe,
                labels=self.labels,
                inputs=self._key_inputs,
                store=self._store,
            )
        return self._loaded

    def _train_in_workshop(
        self, stage: Stage, snapshot: Snapshot, *, on_step: Callable[[int], None]
    ) -> tuple[str, bytes, Manifest]:
        try:
            return self._workshop().train(stage, snapshot, on_step=on_step)
        except (IsolationError, TrainingError):
            self._loaded = None  # the model in memory may not be the base model any more
            raise
