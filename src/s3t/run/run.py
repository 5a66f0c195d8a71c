"""The library's front door: `Run`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from s3t.errors import IsolationError, TrainingError
from s3t.inventory import Inventory
from s3t.ledger import LogEntry, Snapshot
from s3t.planning import Forecast
from s3t.prediction.answers import Answers
from s3t.prediction.members import Prefixes, choose_members
from s3t.progress import Progress, Silent
from s3t.recipe import Recipe, recipe_from
from s3t.records import Data, Inputs, ingest_inputs, requested
from s3t.records.ingest import ingest_labelled
from s3t.run.answering import evaluate, predict
from s3t.run.auditing import audit
from s3t.run.creation import create_run
from s3t.run.deleting import delete, destroy_key, reconcile
from s3t.run.latest import Latest
from s3t.run.locating import Location, locate
from s3t.run.parts import Parts
from s3t.run.results import AuditReport, DeletionReport, Evaluation, Predictions, Reconciliation, Status, TrainReport
from s3t.run.serving import Watched, at_one_generation
from s3t.run.training import Trainer
from s3t.run.workers import Workers
from s3t.stages import Stage
from s3t.store import Manifest

if TYPE_CHECKING:
    from s3t.run.workshop import Workshop


class Run:
    """One trained system in a folder. Use `Run.create` or `Run.open`.

    May be used as a context manager, which closes it. Opening finishes deletions that a crash interrupted. Safe to
    share among threads; several processes, and with a PostgreSQL ledger several hosts, may have a run open. A process
    that is forked off opens the run itself: what its parent has open raises `ForkedError` there.
    """

    def __init__(self, path: Path) -> None:
        self._loaded: Workshop | None = None
        self._loading = threading.Lock()
        self._parts = Parts.open(
            path,
            forget=lambda places: loaded.forget(places) if (loaded := self._loaded) else None,
            moved=self._forget_stale,
            meanwhile=lambda: self._latest.keep_the_time(),
        )
        self._latest = Latest(self._parts, forget_stale=self._forget_stale)
        self._layout, self._recipe = self._parts.layout, self._parts.recipe
        self._description = self._parts.description
        self._ledger, self._store, self._orders = self._parts.ledger, self._parts.store, self._parts.orders
        self._deleter, self._presence = self._parts.deleter, self._parts.presence
        self._answers = Answers.of(self._description.labels, self._recipe.prediction)
        self._trainer = Trainer(
            parts=self._parts,
            snapshot=lambda: self._snapshot(everything=True),
            overdue=lambda: self._latest.overdue,
            train=self._train_in_workshop,
            status=self.status,
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
        """Open a run, and finish what a crash left undone. A run of an older version is brought up to date.

        Raises:
            RunFolderError: the folder is no run, or a newer version's.
            RestoredError: it is an older state of itself, a backup that was put back: see `reconcile`.
            IntegrityError: a describing file is damaged, or the ledger or the secret is missing.
            StorageError: the disk or the database refused.
        """
        run = cls(Path(path))
        try:
            run._latest.resume()
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def reconcile(cls, path: str | Path) -> Reconciliation:
        """Apply later deletions to a run that is an older state of itself; does no harm to one that is not.

        Raises:
            IntegrityError: a slice's file is not one that deletions explain.
            StorageError: the disk or the database refused; running it again goes on.
        """
        run = cls(Path(path))
        try:
            return reconcile(run._parts, status=run.status)
        finally:
            run.close()

    def close(self) -> None:
        """Release the ledger and the model; no deletion waits for them any more. Later use raises `ClosedError`."""
        self._parts.close()
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

    def train(self, *, workers: Workers = 1, progress: Progress | None = None) -> TrainReport:
        """Train every missing stage. May be killed and run again: what is stored is not trained twice.

        Args:
            workers: processes that share the work, each with a base model of its own in memory; the bytes are the
                same. 1: this process. auto: one a GPU, or as many as the cores have room for.
            progress: hears of training.

        Raises:
            InputError: that is no number of workers.
            WorkerError: a worker was killed.
            IsolationError: a stage touched tensors that are not its own.
            IntegrityError: the base model, a slice or an artifact is not what it should be.
            StorageError: the disk refused.
        """
        return self._trainer.train_missing(progress or Silent(), workers=workers)

    def repair(self, *, workers: Workers = 1, progress: Progress | None = None) -> TrainReport:
        """Train what deletions cost: only the stages that are missing, each from its surviving parent.

        Afterwards the artifacts are, byte for byte, those of a run that never saw the deleted records.
        """
        return self.train(workers=workers, progress=progress)

    def extend(self, *, budget: int, workers: Workers = 1, progress: Progress | None = None) -> TrainReport:
        """Add orders to every shard, behind the old ones, and train every stage that is missing.

        The new orders are on the disk before training begins: if that is killed, `train` goes on.

        Args:
            budget: B, orders a shard; more than now, at most L!.
            workers: as for `train`.
            progress: hears of training.

        Raises:
            InputError: the budget is not above the present one, or exceeds L!, or `workers`; nothing has changed.
            StorageError: the disk refused.
        """
        return self._trainer.extend(budget, progress or Silent(), workers=workers)

    def predict(
        self,
        inputs: Inputs,
        *,
        prefixes: Prefixes | None = None,
        progress: Progress | None = None,
    ) -> Predictions:
        """Answer with the ensemble of every shard's serving prefix.

        Args:
            inputs: data with the feature columns, a list of texts, or a list of rows.
            prefixes: who shall answer instead of what serves: live prefixes by shard, or (shard, prefix) pairs.
            progress: hears of every batch.

        Raises:
            NoLiveShardError: no shard can answer.
            InputError: the inputs do not fit the recipe, or a prefix is not alive.
        """
        features, ids = ingest_inputs(inputs, self._recipe)
        heard = progress or Silent()
        return at_one_generation(
            self._ledger,
            self._presence,
            snapshot=self._snapshot,
            members=lambda snapshot: self._members(snapshot, prefixes),
            compute=lambda snapshot, members, work: predict(
                self._workshop(), self._answers, snapshot, members, features, ids=ids, progress=Watched(heard, work)
            ),
        )

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
        heard = progress or Silent()
        return at_one_generation(
            self._ledger,
            self._presence,
            snapshot=self._snapshot,
            members=lambda snapshot: self._members(snapshot, None),
            compute=lambda snapshot, members, work: evaluate(
                self._workshop(),
                self._answers,
                snapshot,
                members,
                records.rows,
                per_depth=per_depth,
                progress=Watched(heard, work),
            ),
        )

    def delete(
        self,
        *,
        records: Sequence[str | int] = (),
        subjects: Sequence[str | int] = (),
        key: str | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> DeletionReport:
        """Delete records by id and by subject. Durable when it returns; serves on without them at once.

        Names that are gone already or that the run has never held are reported and change nothing. Long requests are
        accepted ten thousand names at a time.

        Args:
            records: record ids.
            subjects: subjects; all their records go.
            key: an idempotency key: a request that is made again with the same key does nothing more, and is answered
                with what it did. Made again after a crash, it goes on.
            dry_run: say what would happen, and do nothing.
            progress: hears of names that are accepted.

        Raises:
            InputError: a string instead of a list, an empty name, or a key that was used for other names; nothing has
                changed.
            StorageError: the disk refused. If the message says that the records are out of use, the deletion is
                accepted and opening the run again finishes it; otherwise nothing has changed.
            IntegrityError: a slice's file is not one that the ledger knows (records are out of use); or as `open`.
            FsyncError: the disk could not confirm; this process does nothing more.
        """
        self._latest.as_it_is()
        asked = {"records": requested("records", records), "subjects": requested("subjects", subjects)}
        return delete(self._parts, self._status, key=key, dry_run=dry_run, progress=progress or Silent(), **asked)

    def erase(self, *, copies_are_gone: bool = False) -> Status:
        """Erase now whatever is accepted and still waits to be erased (`deletion.erase_within`). `copies_are_gone`
        says so of those of the data set in another host's cache, which else are waited for.

        Raises:
            StorageError: the disk or the database refused, or another host has copies.
            IntegrityError: a slice's file is not one that the ledger knows.
        """
        self._latest.erase(copies_are_gone=copies_are_gone)
        return self.status()

    def locate(self, *, records: Sequence[str | int] = (), subjects: Sequence[str | int] = ()) -> tuple[Location, ...]:
        """For the operator: whether records and subjects are present, and in which slice; or deleted, and when.

        Raises:
            InputError: a string instead of a list, or an empty name.
        """
        with self._ledger.reading() as transaction:
            return locate(
                transaction,
                self._parts.secret,
                records=requested("records", records),
                subjects=requested("subjects", subjects),
            )

    def log(self) -> tuple[LogEntry, ...]:
        """Every deletion with the times at which it was accepted, effective and erased; entry 0 is init's."""
        with self._ledger.reading() as transaction:
            return tuple(transaction.log())

    def destroy_key(self) -> None:
        """Destroy the run's secret: tokens, digests and keys then tell nothing to anybody, ever.

        The run goes on answering. It cannot delete, train or be audited any more, so a record that is still in it can
        only be deleted by removing the whole run.

        Raises:
            StorageError: the disk or the database refused; run it again.
        """
        destroy_key(self._parts)

    def audit(self, *, replay: int = 0, seed: int | None = None, progress: Progress | None = None) -> AuditReport:
        """Recompute the key of every live stage from today's slices, check bytes and chains; train some again.

        Args:
            replay: how many live stages to train again and compare byte for byte.
            seed: chooses which; by default nobody can foresee it.
            progress: hears of replayed training.
        """
        return audit(
            self._parts,
            snapshot=self._snapshot,
            cost=self._trainer.cost,
            retrain=self._train_in_workshop,
            replay=replay,
            seed=seed,
            progress=progress or Silent(),
        )

    def _snapshot(self, *, everything: bool = False) -> Snapshot:
        return self._latest.snapshot(everything=everything)

    def _forget_stale(self, snapshot: Snapshot) -> None:
        if (loaded := self._loaded) is not None:  # read once: another thread may close the run
            loaded.forget_stale(snapshot)

    def _members(self, snapshot: Snapshot, prefixes: Prefixes | None) -> list[Stage]:
        settings = self._recipe.prediction
        return choose_members(self._inventory(snapshot), prefixes, settings=settings, run=str(self.path))

    def _inventory(self, snapshot: Snapshot) -> Inventory:
        return self._parts.inventory(snapshot)

    def _status(self, inventory: Inventory) -> Status:
        return Status(
            inventory=inventory,
            gaps=self._description.gaps,
            warnings=(*self._description.warnings, *([str(self._latest.overdue)] if self._latest.overdue else [])),
            missing=len(inventory.missing()),
            unfinished=self._parts.unfinished(),
            ledger=self._ledger.kind,
            store=self._store,
            recipe=self.recipe,
        )

    def _workshop(self) -> Workshop:
        with self._loading:
            if self._loaded is None:
                from s3t.run.workshop import Workshop  # here: it imports torch

                self._loaded = Workshop(
                    slices=self._layout.slices,
                    tmp=self._layout.tmp,
                    recipe=self._recipe,
                    labels=self.labels,
                    inputs=self._parts.key_inputs,
                    store=self._store,
                    public=self._parts.public,
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
