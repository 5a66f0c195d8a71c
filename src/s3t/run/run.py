"""The library's front door: `Run`.

A verb is a function of a run in a module of its own. Those that need torch or a reader of tables are imported when they
are called: a short command should not wait for them.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from s3t.aftermath import NOTHING_CHANGED, RUN_MADE, after_refusal
from s3t.errors import InputError
from s3t.events import Progress, silent
from s3t.progress import watched
from s3t.results.log import AdditionEntry, LogEntry
from s3t.run import adding, deleting, locating, training
from s3t.run.orders import Addition
from s3t.run.parts import Parts
from s3t.run.reporting import forecast_now, inventory_now, shape_of, status_of

if TYPE_CHECKING:
    from s3t.core import Inventory
    from s3t.export.engines import Engine
    from s3t.prediction.answers import Prefixes
    from s3t.prediction.generation import Sampling
    from s3t.recipe import Recipe
    from s3t.records.ingest import IngestedInputs, Inputs
    from s3t.records.reading import Data
    from s3t.results.answers import Evaluation, Likelihoods, Predictions, Texts
    from s3t.results.changes import Audit, Exports, Reconciliation
    from s3t.results.state import Forecast, Status
    from s3t.run.answerer import State
    from s3t.run.approvals import Approvals
    from s3t.run.extension import Extension
    from s3t.run.pending import PendingAnswers


class Run:
    """A trained system in a folder. Use `Run.create` or `Run.open`.

    May be used as a context manager, which closes it. Opening finishes deletions that a crash interrupted. Safe to
    share among threads; several processes, and with a PostgreSQL ledger several hosts, may have a run open. A process
    that is forked off opens the run itself: what its parent has open raises `ForkedError` there.

    `progress`, where a method takes it, is a function of one `Event`. Every method may raise StorageError: the disk or
    the database refused; its `aftermath` says what is true of the run then.
    """

    add = adding.add
    sync = adding.sync
    train = training.train
    repair = training.repair
    extend = training.extend
    delete = deleting.delete
    expire = deleting.expire
    erase = deleting.erase
    withdraw = deleting.withdraw
    destroy_key = deleting.destroy_key
    locate = locating.locate

    def __init__(self, path: Path) -> None:
        self.notices: tuple[str, ...] = ()  # what `create` found odd in the records, in words; kept nowhere
        self.parts = Parts(path)  # the roles of the open run, for servers and engines that build on it

    @staticmethod
    def _sampling(stop: Sequence[str], seed: int | None, **others: Any) -> Sampling:
        from s3t.prediction.generation import Sampling

        stops = (stop,) if isinstance(stop, str) else tuple(stop)
        return Sampling(stop=stops, seed=secrets.randbelow(2**63) if seed is None else seed, **others)

    @classmethod
    def create(
        cls,
        path: str | Path,
        *,
        recipe: Recipe | Mapping[str, Any] | str | Path,
        data: Data,
        public_data: bool = False,
        progress: Progress | None = None,
    ) -> Run:
        """Make a run: check everything, partition the records, draw the orders. Trains nothing yet.

        Args:
            path: a folder that does not exist.
            recipe: a `Recipe`, a mapping of its fields, or a YAML file.
            data: a CSV, JSON lines or Parquet file, a `datasets.Dataset`, a pandas frame or an arrow table.
            public_data: the records are nobody's secret (a benchmark's): a salt that is easily guessed is taken, so
                that numbers can be made again.

        Raises:
            InputError: with all problems of recipe and data; no folder is left.
        """
        from s3t.run.creation import create_run

        notices = create_run(Path(path), recipe, data, public_data=public_data, progress=progress)
        with after_refusal(RUN_MADE):
            run = cls.open(path)
        run.notices = notices
        return run

    @classmethod
    def open(cls, path: str | Path, *, moved: bool = False) -> Run:
        """Open a run, and finish what a crash left undone.

        A folder that was copied answers, and changes nothing; `moved` says that it is the run itself.

        Raises:
            MovedError: `moved`, but the run is where it was.
            RunFolderError: the folder is no run, or another version's.
            RestoredError: it is an older state of itself, a backup that was put back: see `reconcile`.
            IntegrityError: a describing file is damaged, or the ledger or the secret is missing.
        """
        with after_refusal(NOTHING_CHANGED):
            run = cls(Path(path))
            try:
                run.parts.note_home(moved=moved)
                run.parts.upkeep.resume()
            except BaseException:
                run.close()
                raise
            return run

    @classmethod
    def reconcile(cls, path: str | Path, *, moved: bool = False) -> Reconciliation:
        """Apply later deletions to a run that is an older state of itself; does no harm to one that is not.

        Raises:
            IntegrityError: a slice's file is not one that deletions explain.
            MovedError: the folder is a copy; `moved`, as for `open`, denies that.
        """
        with cls(Path(path)) as run:
            run.parts.note_home(moved=moved)
            return deleting.reconcile(run.parts)

    @classmethod
    def clone(cls, path: str | Path, to: str | Path, *, store: str | None = None) -> Run:
        """Copy a run as a run of its own, with its own memory of deletions. Later deletions must be made in both.

        `store`: a bucket for its slices and artifacts, s3://BUCKET/PREFIX, if they are not to be where the run's are.

        Raises:
            InputError: the bucket cannot hold a run.
            RunFolderError: `to` exists.
            MovedError: `path` is a copy of a folder itself: `adopt` it.
        """
        from s3t.run.cloning import clone

        with cls.open(path) as run:
            clone(run.parts, Path(to), store=store)
        return cls.open(to)

    @classmethod
    def adopt(cls, path: str | Path) -> Run:
        """Make a copy of a run's folder a run of its own, as `clone` would have; what the run has deleted since goes.

        Raises:
            InputError: the folder is the run itself.
        """
        from s3t.run.cloning import adopt

        with cls(Path(path)) as copy:
            adopt(copy.parts)
        cls.reconcile(path)
        return cls.open(path)

    def __repr__(self) -> str:
        """The run in one line; asks neither the ledger nor the disk."""
        return f"Run({str(self.path)!r}, {shape_of(self.parts)})"

    def close(self) -> None:
        """Release the ledger and the model; no deletion waits for them any more. Later use raises `ClosedError`."""
        self.parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_failure: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.parts.layout.root

    @property
    def recipe(self) -> Recipe:
        """The recipe, without its salt, with the budget and the policy of repair that the run has now."""
        return self.parts.present_recipe

    @property
    def labels(self) -> tuple[str, ...]:
        """The label set in the head's order; empty for a regression."""
        return self.parts.labels_at(self.parts.latest.snapshot())

    @property
    def approvals(self) -> Approvals:
        """Requests for deletion that the run's servers hold until somebody approves or refuses them."""
        return self.parts.approvals

    def status(self, *, full: bool = False) -> Status:
        """Live stages and serving prefixes; `full`: also what takes longer with every stage, the bytes of their
        artifacts and a forecast of how many more deletions they survive."""
        return status_of(self.parts, inventory_now(self.parts), full=full)

    def inventory(self) -> Inventory:
        """Orders, records and live stages, to compute with."""
        return inventory_now(self.parts)

    def forecast(self) -> Forecast | None:
        """Expected number of further deletions that the run takes, without repair; None if it cannot be computed."""
        return forecast_now(self.inventory(), self.recipe)

    def extension(
        self,
        *,
        budget: int | None = None,
        spares: int | None = None,
        spare_depth: int | None = None,
        policy: Any | None = None,
        progress: Progress | None = None,
    ) -> Extension:
        """Forecast of `extend`, with its arguments and errors: stages to train, gain in depth. Changes nothing."""
        from s3t.run.extension import extension_by

        added = Addition(budget=budget, spares=spares, spare_depth=spare_depth, policy=policy)
        return extension_by(self.parts, added, progress or silent)

    def predict(
        self, inputs: Inputs, *, prefixes: Prefixes | None = None, progress: Progress | None = None
    ) -> Predictions:
        """Answer with the ensemble of every shard's serving prefix.

        Args:
            inputs: data with the feature columns; a list, a series or an array of texts, of pairs of texts, or of
                images (PIL, uint8 arrays, encoded bytes); a list of rows; or a mapping of columns.
            prefixes: answer instead of the serving ones: live prefixes by shard, or (shard, prefix) pairs.

        Raises:
            NoLiveShardError: no shard can answer.
            InputError: the inputs do not fit the recipe, or a prefix is not alive.
        """
        return self.parts.answerer.predict(self.checked(inputs), prefixes, progress or silent)

    def prepare(self, *, look_seconds: float = 0.1) -> None:
        """Load the base model now, and from now on look at the ledger every `look_seconds`: for servers."""
        self.parts.presence.poll_seconds = look_seconds
        self.parts.loaded.get()

    def checked(self, inputs: Inputs) -> IngestedInputs:
        """Inputs for `hold`, checked as `predict` checks them. Asks neither the ledger nor the model."""
        return self.parts.answerer.checked(inputs)

    def hold(self, *requests: Inputs | IngestedInputs) -> PendingAnswers:
        """Answer requests, in one computation, and keep deletions waiting until the answers have left: for servers.

        After `predict` a deletion may become effective while its answer is on the way to a client; here it may not. Ask
        `may_leave()` right before sending; if it says no, `release()` and hold again. `requests` are inputs of each, as
        for `predict`, or as `checked` gives them: an error, as of `predict`, does not tell which was wrong.
        """
        return self.parts.answerer.hold(requests)

    def score(self, data: Inputs, *, prefixes: Prefixes | None = None, progress: Progress | None = None) -> Likelihoods:
        """Log-probability of each learned token of texts, under the ensemble of every shard's serving prefix.

        Args:
            data: records as the run was trained on; ids are optional.
            prefixes: as for `predict`.

        Raises:
            NoLiveShardError: no shard can answer.
            InputError: the run is of another task, or as `predict`.
        """
        return self.parts.answerer.score(data, prefixes, progress or silent)

    def generate(
        self,
        prompts: Inputs,
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        n: int = 1,
        prefixes: Prefixes | None = None,
        progress: Progress | None = None,
    ) -> Texts:
        """Write after prompts with the ensemble of every shard's serving prefix: its mean of next-token probabilities.

        Args:
            prompts: data with the prompts' columns; a list of texts, or of chats that end before the assistant's turn.
            max_new_tokens: tokens of a text at most.
            temperature: 0: the likeliest token each time; else draws from probabilities to the power 1/temperature.
            top_p: draws only among the likeliest tokens that have this probability together.
            stop: texts at which a text ends; they are no part of it.
            seed: of the draws, which each prompt and choice has for itself; None: another one each time.
            n: texts after each prompt.
            prefixes: as for `predict`.

        Raises:
            NoLiveShardError: no shard can answer.
            InputError: the run is of another task; a prompt is not as the recipe says, or too long for the model.
        """
        sampling = self._sampling(stop, seed, max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, n=n)
        return self.parts.writer.generate(prompts, prefixes, sampling, progress or silent)

    def stream(
        self,
        prompt: str | Sequence[Mapping[str, str]] | Mapping[str, Any],
        *,
        max_new_tokens: int = 128,
        temperature: float = 0.0,
        top_p: float = 1.0,
        stop: Sequence[str] = (),
        seed: int | None = None,
        prefixes: Prefixes | None = None,
    ) -> Iterator[str]:
        """Yields the parts of one text as they are written; together they are that of `generate`.

        Args:
            prompt: a text, a chat, or a row with the prompt's columns. The others are as for `generate`.

        Raises:
            OvertakenError: a deletion took a stage that was writing; ask again.
            NoLiveShardError: no shard can answer.
            InputError: as `generate`.
        """
        sampling = self._sampling(stop, seed, max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p)
        return self.parts.writer.stream(prompt, prefixes, sampling)

    def predict_windows(
        self, source: str | Path | BinaryIO, *, form: str | None = None, whole: bool = False
    ) -> Iterator[Predictions]:
        """Answer a file or a pipe window by window, as it is read, in bounded memory; bit for bit as `predict` does.

        Args:
            source: a file; or an open pipe of CSV or JSON lines.
            form: csv, jsonl or parquet; None: as the file's suffix says.
            whole: take all inputs as one window. Else each is answered at a generation of its own.

        Raises:
            InputError: as `predict`, after the windows before the fault.
        """
        return self.parts.answerer.predict_windows(source, form, whole=whole)

    def check_labelled(self, data: Data) -> None:
        """Raise the problems that `evaluate` would find in data, before hours of training, say."""
        self.parts.answerer.labelled(data)

    def evaluate(
        self, data: Data | None, *, per_depth: bool = True, write: int = 0, progress: Progress | None = None
    ) -> Evaluation:
        """Metrics of the ensemble, of each member, and of the ensemble cut to each depth, on labelled data.

        Args:
            data: with features and labels; ids are not looked at. None: the recipe's public records.
            per_depth: also evaluate shallower ensembles, at the cost of one pass a live block.
            write: language models: also write after so many prompts, the first, and compare: exact match and ROUGE-L.

        Errors as for `predict`.
        """
        answerer, writer, public = self.parts.answerer, self.parts.writer, self.parts.public
        if write != 0:
            writer.check_comparison(write)
        if data is None and public is None:
            raise InputError(
                "the data", "none is given, and the recipe has no prediction.validation; give labelled records"
            )
        rows = public.rows if data is None and public else answerer.labelled(data)

        def compute(state: State) -> Evaluation:
            found = answerer.evaluate(state, rows, per_depth=per_depth, progress=progress or silent)
            if write == 0 or data is None:
                return found
            return found.with_metrics(writer.compared(state, rows, write, progress or silent))

        return answerer.noticed(answerer.computed(None, compute), rows)

    def log(self, generations: Sequence[int] | None = None) -> tuple[LogEntry, ...]:
        """Every deletion, or some, with the times at which it was accepted, effective and erased; entry 0 is init's."""
        with self.parts.ledger.reading() as transaction:
            return tuple(transaction.history.log(generations))

    def additions(self) -> tuple[AdditionEntry, ...]:
        """Every addition, with its time and its number of records."""
        with self.parts.ledger.reading() as transaction:
            return tuple(transaction.rows.all(AdditionEntry))

    def export(
        self,
        output: str | Path,
        *,
        shard: int | None = None,
        merge: bool = False,
        engine: Engine = "peft",
        progress: Progress | None = None,
    ) -> Exports:
        """Write the live chain of each shard, or of one, into `output/NAME`; the name is the hash of the content.

        It is an adapter for PEFT, or, with `merge`, a model for transformers. Deletions that hit it wait until it is
        withdrawn.

        Args:
            output: a folder, made if it is missing; not the run's.
            shard: the one to export; None: all that answer.
            merge: fold the adapter into the base model's weights.
            engine: reader of the adapter; what it would refuse is refused here, with all reasons.

        Raises:
            InputError: wrong arguments, a chain that the engine or PEFT cannot hold, or something else in its place.
            NoLiveShardError: no shard, or not that one, has a live chain.
        """
        from s3t.run.exporting import Exporter

        exporter = Exporter.of(self.parts, Path(output), shard=shard, merge=merge, engine=engine)
        return exporter.export(progress or silent)

    def audit(self, *, replay: int = 0, seed: int | None = None, progress: Progress | None = None) -> Audit:
        """Recompute the key of every live stage from today's slices, check bytes and chains; train some again.

        Args:
            replay: number of live stages to train again and compare byte for byte.
            seed: chooses them; by default they are unpredictable.
        """
        from s3t.run.auditing import audit

        return audit(self.parts, replay=replay, seed=seed, progress=watched(progress))
