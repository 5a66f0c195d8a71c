"""Training what is missing: each stage from a snapshot of the ledger, committed only if no deletion came between.

Several trainers may work on one run, in threads, processes and hosts: each claims a stage in the ledger before it
begins, so they share the work. No lock is held while one trains. Worker processes are such trainers, too.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from s3t.aftermath import EXTENDED, NOTHING_CHANGED, STAGES_KEPT, after_refusal
from s3t.core import Inventory, Stage, by_kind
from s3t.engine import Launcher, Placement, Processes, cores_worth, run_on, run_stages, usable_cores
from s3t.errors import FsyncError, InputError, StorageError
from s3t.events import EpochEnd, Event, Progress, StageEnd, StageStart, TrainingStart, WorkStep, telling
from s3t.extras import how_to_install
from s3t.ledger import Trained
from s3t.ledger.presence import Leaving, Overtaken, Uses, Work
from s3t.progress import watched
from s3t.recipe import EngineSettings, Recipe, TrainingSettings, recipe_from
from s3t.results.changes import TrainedStage, Training
from s3t.run.checkpoints import Checkpoints
from s3t.run.orders import Addition
from s3t.run.parts import Parts
from s3t.run.reporting import inventory_now, outage_of
from s3t.store.artifacts import Manifest, lost_stages
from s3t.store.disk import storage_errors
from s3t.wording import counted

if TYPE_CHECKING:
    from s3t.run.run import Run

WorkerCount: TypeAlias = int | Literal["auto"]
"""Number of workers; auto: one a GPU, or as many as the cores have room for."""
MOST_WORKERS = 10_000
ALONE = EngineSettings()
"""This process trains."""
_WORKER = "s3t.run.train_worker"
_ONE_HOST = "hosts would not see each other's locks in SQLite: make the run with a ledger in PostgreSQL (ledger)"


def train(
    run: Run,
    *,
    workers: WorkerCount | None = None,
    engine: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Training:
    """Train every missing stage, on all records that were added by now. May be killed and run again: what is stored is
    not trained twice. Models that lack what was added last serve until others are there.

    Args:
        workers: processes that share the work, each with a base model of its own in memory; the bytes are the
            same. 1: this process. auto: one a GPU, or as many as the cores have room for. None: as the recipe says.
        engine: fields in the place of those of the recipe's `engine`, as {"on": "ray"}.
        progress: hears of it; None: a bar, where a terminal or a notebook shows it.

    Raises:
        InputError: that is no number of workers, or the cluster does not answer, or has no room for one.
        WorkerError: a worker was killed.
        IsolationError: a stage touched tensors that are not its own.
        IntegrityError: the base model, a slice or an artifact is not what it should be.
    """
    parts = run.parts
    settings = engine_of(parts, workers, engine)
    parts.check_changeable()
    if (snapshot := parts.latest.snapshot()).learned < snapshot.added:
        parts.check_trainable()
        with parts.ledger.writing() as transaction:
            transaction.learn()
    return train_missing(parts, watched(progress), engine=settings)


def repair(
    run: Run,
    *,
    workers: WorkerCount | None = None,
    engine: Mapping[str, Any] | None = None,
    hours: float | None = None,
    progress: Progress | None = None,
) -> Training:
    """Train what deletions cost: only the stages that are missing, each from its surviving parent.

    Afterwards the artifacts are, byte for byte, those of a run that never saw the deleted records.

    Args:
        workers, engine: as for `train`.
        hours: time after which no stage is begun; None: no bound. Repair as needed begins with the most worth. With
            `head: ridge` what heads are solved from is made in any case: 0 does that alone.

    Raises:
        InputError: that is no number of hours. Other errors as for `train`.
    """
    if hours is not None and not (isinstance(hours, int | float) and 0 <= hours < math.inf):
        raise InputError("the hours", f"{hours!r} is not a finite number of at least 0")
    settings, until = engine_of(run.parts, workers, engine), math.inf if hours is None else time.time() + 3600 * hours
    return train_missing(run.parts, watched(progress), engine=settings, until=until)


def extend(
    run: Run,
    *,
    budget: int | None = None,
    spares: int | None = None,
    spare_depth: int | None = None,
    policy: Any | None = None,
    workers: WorkerCount | None = None,
    progress: Progress | None = None,
) -> Training:
    """Add orders to every shard, behind the old ones, until it has `budget`; then `train` what is missing.

    Where the run is repaired as needed, it has `spares` instead. With `policy` it gets another policy of repair.

    Args:
        budget: B, orders a shard.
        spares: chains of a shard beside the main one; None: as many as now, if `spare_depth` is given.
        spare_depth: slices of each; None: as many as now.
        policy: as `deletion.repair` of a recipe, in the place of the run's; orders and live stages are kept.
        workers: as for `train`.

    Raises:
        InputError: the budget is below the present one, or exceeds L!; the spares are fewer or shorter than now, or
            more than fit; the run has fixed orders, or none; a wrong policy; or `workers`. Nothing has changed.
    """
    parts, heard = run.parts, watched(progress)
    added = Addition(budget=budget, spares=spares, spare_depth=spare_depth, policy=policy)
    settings = engine_of(parts, workers)
    parts.check_changeable()
    with after_refusal(NOTHING_CHANGED):
        parts.check_trainable()  # else orders would be left that cannot be trained
        parts.orders.extend(parts.recipe, added, lock=parts.lock, progress=heard)
    with after_refusal(EXTENDED):
        return train_missing(parts, heard, engine=settings)


def train_missing(
    parts: Parts, progress: Progress, *, engine: EngineSettings = ALONE, until: float = math.inf
) -> Training:
    """Train and commit every missing stage, parents first; those of orders that are added meanwhile, too.

    `until`, in seconds since the epoch, is when no stage is begun any more; what takes passes alone is made all the
    same. What is trained is kept, whatever is refused later.
    """
    parts.check_changeable()
    with after_refusal(STAGES_KEPT):
        started, recipe = time.monotonic(), parts.recipe
        _forget(parts, lost_stages(parts.store, parts.ledger.snapshot().stages))
        inventory = _inventory(parts)
        missing = inventory.missing() if time.time() < until else inventory.missing_passes()
        launcher = _launcher(parts, engine, missing, until)
        ends: list[StageEnd] = []

        def hear(event: Event) -> None:
            if isinstance(event, StageEnd):
                ends.append(event)
            progress(event)

        with telling(hear, _work_of(inventory, missing, recipe), training_steps(inventory, missing, recipe)):
            hear(TrainingStart(stages=len(missing)))
            if launcher is not None:
                look = _Watch(parts, inventory, hear).look if engine.on == "slurm" else parts.ledger.snapshot
                discarded = run_on(launcher, progress=hear, meanwhile=partial(_unless_silent, look))
                ends.sort(key=lambda end: (end.stage.kind, end.stage.depth, end.stage.shard, end.stage.prefix))
            else:
                discarded = _train_here(parts, hear, until)
        while unwanted := _inventory(parts).unwanted():
            _forget(parts, unwanted)
        after = inventory_now(parts)
        with parts.ledger.writing() as transaction:
            transaction.note_training(missing := after.missing(), learned=after.learned)
        return Training(
            summaries=tuple(
                TrainedStage(
                    **end.stage._asdict(),
                    steps=end.steps,
                    losses=end.losses,
                    seconds=round(end.seconds, 3),
                    validation=end.validation,
                )
                for end in ends
            ),
            discarded=discarded,
            seconds=time.monotonic() - started,
            generation=after.generation,
            missing=len(missing),
            depths=after.depths(),
            outage=outage_of(parts, after),
        )


def _train_here(parts: Parts, progress: Progress, until: float) -> int:
    """Passes come first and last, whatever the time: of models that serve, and of those that are deeper then."""

    def discarded(missing: Callable[[Inventory], Sequence[Stage]], until: float = math.inf) -> int:
        generation = 0

        def listed() -> Sequence[Stage]:
            nonlocal generation
            inventory = _inventory(parts)
            generation = inventory.generation
            return missing(inventory)

        def trained(stage: Stage) -> bool | None:
            if parts.latest.snapshot().generation != generation:
                return None  # by now another stage may be worth more, as of a shard that has none
            return _train_stage(parts, stage, progress)

        return run_stages(listed, trained, until=until)

    passes = Inventory.missing_passes
    return discarded(passes) + discarded(Inventory.missing, until) + discarded(passes)


def _inventory(parts: Parts) -> Inventory:
    """The inventory, after every accepted deletion has left its slice."""
    parts.upkeep.erase_all()
    return parts.latest.answering(parts.latest.snapshot())


def _forget(parts: Parts, stages: Mapping[Stage, str]) -> None:
    """Take stages out of use: those whose artifacts are gone from the store, and readouts that nothing reads."""
    if stages:
        parts.check_trainable()
        with parts.ledger.writing() as transaction:
            transaction.forget_stages(stages)


def _train_stage(parts: Parts, stage: Stage, progress: Progress) -> bool | None:
    """Train and commit one stage; False if a deletion came between, None if there is nothing to do here now."""
    parts.upkeep.erase_all()
    snapshot, overdue = parts.latest.snapshot(), parts.upkeep.overdue
    inventory = parts.latest.answering(snapshot)
    alive, seen = inventory.alive, snapshot.seen(stage)
    is_pending = any(state.pending for state in seen.values())
    if overdue is not None and is_pending:
        raise overdue
    if stage in alive or is_pending or not inventory.may_begin(stage):
        return None  # the last: another is at its parent or at the main chain, or a deletion took them
    parents = {link: alive[link] for link in stage.chain[:-1]}
    with (
        suppress(Overtaken),
        parts.presence.working(snapshot, Uses(stages=parents, slices=seen), leaving=Leaving.NEVER) as work,
        parts.presence.claimed(stage, device=_device(parts)) as claimed,
    ):
        if not claimed or stage in parts.latest.inventory(parts.ledger.snapshot()).alive:
            return None  # the second: another stored it, and let go of its claim, since we looked
        epochs = parts.recipe.training.epochs if stage.kind == "model" else 0
        records = training_steps(inventory, [stage], parts.recipe) // max(1, epochs)
        report = StageReport(stage, records=records, epochs=epochs, progress=progress, work=work)
        checkpoints = partial(Checkpoints, parts, stage, seen, parents, report)
        key, content, manifest = parts.loaded.train(stage, snapshot, report, checkpoints)
        trained = Trained(
            stage=stage,
            key=key,
            manifest=sha256(manifest.to_bytes()).hexdigest(),
            session=parts.presence.session,
            seen=seen,
            parents=parents,
            seconds=report.seconds,
        )
        stored = _store(parts, trained, content, manifest)
        if stored:
            report.stored(manifest)
        return stored
    return False


def _device(parts: Parts) -> str:
    from s3t.training.numerics import resolve_device  # here: it imports torch

    return str(resolve_device(parts.recipe.training.device))


def _store(parts: Parts, trained: Trained, content: bytes, manifest: Manifest) -> bool | None:
    """Put an artifact, and take its stage into use. What cannot come into use is erased as what is tainted is."""
    with storage_errors(f"storing {trained.stage}"):
        with parts.ledger.writing() as transaction:
            if trained.stage in transaction.snapshot().stages:
                return None  # its children may be trained already, on those very bytes
            if not transaction.announce(trained):
                return False  # a deletion came, or this process slept until another took the claim over
        parts.store.put(trained.stage.shard, trained.key, content, manifest)
        with parts.ledger.writing() as transaction:
            return transaction.commit(trained)


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

    def resume(self, seconds: float) -> None:
        """Go on with a training that took so long before."""
        self._began -= seconds

    def __call__(self, event: Event) -> None:
        self._progress(event)
        self._work.check()
        if not isinstance(event, WorkStep):
            return
        self._records += event.count
        if (loss := event.loss) is None:
            return
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
        self._progress(
            StageEnd(
                stage=self._stage,
                losses=tuple(self._losses),
                steps=manifest.steps,
                seconds=self.seconds,
                validation=manifest.validation,
            )
        )


def _work_of(inventory: Inventory, stages: Sequence[Stage], recipe: Recipe) -> str:
    """The size of a training in the user's terms: stages, records of the run, epochs."""
    records = counted(sum(inventory.records.values()), "record")
    epochs = f", {counted(recipe.training.epochs, 'epoch')} each" if recipe.method.trains else ""
    return f"training {counted(len(stages), 'stage')} on {records}{epochs}"


def training_steps(inventory: Inventory, stages: Sequence[Stage], recipe: Recipe) -> int:
    """Steps of the progress: records to go through, in all epochs of all stages; where some are replayed, about."""
    models, of_slices = by_kind(stages)
    own = sum(inventory.records_in(stage.shard, stage.prefix[-1:]) for stage in models)
    before = sum(inventory.records_in(stage.shard, stage.prefix[:-1]) for stage in models)
    once = sum(inventory.records[place] for stage in of_slices for segments in stage.own for place in segments)
    return recipe.training.epochs * (own + recipe.method.replayed(before)) + once


def engine_of(
    parts: Parts, workers: WorkerCount | None = None, given: Mapping[str, Any] | None = None
) -> EngineSettings:
    """The recipe's engine, with other fields in the place of its own."""
    if workers is not None:
        whole = isinstance(workers, int) and not isinstance(workers, bool)
        if workers != "auto" and not (whole and 1 <= workers <= MOST_WORKERS):
            shown = repr(workers)[:40]
            raise InputError("workers", f"{shown} is neither a whole number from 1 to {MOST_WORKERS:,} nor auto")
    fields = {**(given or {}), **({} if workers is None else {"workers": workers})}
    if not fields:
        return parts.recipe.engine
    content = parts.recipe.model_dump(mode="json", exclude_unset=True)
    return recipe_from(content | {"engine": content.get("engine", {}) | fields}, where="the engine").engine


def _launcher(parts: Parts, engine: EngineSettings, missing: Collection[Stage], until: float) -> Launcher | None:
    """The launcher of workers for the missing stages; None if this process trains alone."""
    training, arguments = parts.recipe.training, [str(parts.layout.root), str(until)]
    if engine.on == "local":
        places = placements(engine.workers, missing, training)
        return Processes(_WORKER, arguments, places) if len(places) > 1 else None
    if not missing:
        return None
    from s3t.training.numerics import versions  # here: it imports torch

    most = _busy_at_most(missing)
    cpus = engine.cpus_per_worker or (1 if training.threads == "auto" else training.threads)
    # A stage's bits depend on both, so each worker checks its own.
    arguments += [
        "cuda" if engine.gpus_per_worker else "cpu",
        json.dumps(versions(quantized=parts.recipe.training.quantization != "none")),
    ]
    several = parts.description.ledger is not None
    try:
        if engine.on == "ray":
            from s3t.engine.on_ray import RayActors

            return RayActors(_WORKER, arguments, engine, cpus=cpus, most=most, one_host="" if several else _ONE_HOST)
        from s3t.engine.on_slurm import SlurmJobs
    except ImportError as error:
        raise InputError("the engine", f"{error}; install it with: {how_to_install(engine.on)}") from error
    if not several and engine.address != "local":
        raise InputError("the engine", _ONE_HOST)
    workers = 1 if engine.workers == "auto" else min(engine.workers, most)  # the recipe refuses auto for Slurm
    return SlurmJobs(_WORKER, arguments, engine, cpus=cpus, workers=workers, logs=Path.cwd() / "s3t-slurm")


def _unless_silent(look: Callable[[], object]) -> None:
    """Look at the ledger, which raises if another thread closes the run. That it does not answer stops no worker: those
    that need it find out by themselves."""
    try:
        look()
    except FsyncError:
        raise
    except StorageError as error:
        logging.getLogger("s3t.run").warning("while workers train: %s", error)


class _Watch:
    """Reports the stages that workers commit, where the workers report nothing themselves."""

    def __init__(self, parts: Parts, inventory: Inventory, progress: Progress) -> None:
        self._parts, self._inventory, self._progress = parts, inventory, progress
        self._known = parts.ledger.snapshot().stages

    def look(self) -> None:
        now = self._parts.ledger.snapshot().stages
        new = {stage: key for stage, key in now.items() if self._known.get(stage) != key}
        if not new:
            return
        with self._parts.ledger.reading() as transaction:
            durations = transaction.history.durations()
        for stage, key in new.items():
            if (manifest := self._parts.store.manifest(stage.shard, key)) is not None:
                self._progress(WorkStep(count=training_steps(self._inventory, [stage], self._parts.recipe)))
                self._progress(
                    StageEnd(
                        stage=stage,
                        losses=(),
                        steps=manifest.steps,
                        seconds=durations.get(stage, 0.0),
                        validation=manifest.validation,
                    )
                )
            self._known = {**self._known, stage: key}


def _busy_at_most(missing: Collection[Stage]) -> int:
    """Workers that can be busy at once."""
    return len(set(missing).difference(parent for stage in missing for parent in stage.parents))


def placements(workers: WorkerCount, missing: Collection[Stage], training: TrainingSettings) -> list[Placement]:
    """Placements of the workers, at most as many as can be busy; one or none: this process trains alone.

    A stage's bits depend on the number of threads, so each worker takes as many as the recipe says.
    """
    most = _busy_at_most(missing)
    if workers == 1 or most <= 1:
        return []
    devices = _cuda_devices(training)
    if devices:
        count = min(most, len(devices) if workers == "auto" else workers)
        return [
            Placement(environment={"CUDA_VISIBLE_DEVICES": devices[number % len(devices)]}) for number in range(count)
        ]
    threads = 1 if training.threads == "auto" else training.threads
    count = min(most, max(1, cores_worth() // threads) if workers == "auto" else workers)
    cores = usable_cores()
    if not hasattr(os, "sched_setaffinity") or count * threads > len(cores):
        return [Placement()] * count
    return [Placement(cores=cores[number * threads : (number + 1) * threads]) for number in range(count)]


def _cuda_devices(training: TrainingSettings) -> list[str]:
    """The GPUs to train on, as CUDA_VISIBLE_DEVICES names them; none where a CPU trains."""
    if training.device == "cpu":
        return []
    import torch  # here: where the recipe names a CPU, nothing but workers needs it

    from s3t.training.numerics import resolve_device

    if resolve_device(training.device).type != "cuda":
        return []
    count = torch.cuda.device_count()
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",")[:count] if given else [str(number) for number in range(count)]
