"""The roles of an open run, built and wired in one place."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.core import KeyInputs, Place, Secret, Stage
from s3t.deletion.protocol import Eraser
from s3t.deletion.withdrawal import ExportMemory, Withdrawer
from s3t.deletion.witness import Witness
from s3t.errors import (
    FsyncError,
    IntegrityError,
    IsolationError,
    RunFolderError,
    S3TError,
    StorageError,
    TrainingError,
)
from s3t.events import Progress, silent
from s3t.ledger import Ledger, Snapshot
from s3t.ledger.engines import address_of, is_read_only, read_only_error
from s3t.ledger.locks import hold
from s3t.ledger.presence import Presence
from s3t.recipe import Recipe, training_part, unresolved
from s3t.run.latest import Latest
from s3t.run.orders import Orders
from s3t.run.upkeep import Upkeep
from s3t.store.artifacts import Artifacts, Manifest
from s3t.store.blobs import open_blobs
from s3t.store.disk import OpenedFolder, storage_errors
from s3t.store.folder import Description, Home, Layout, check_files, moved_error, read_layout, write_home
from s3t.store.secret import VARIABLE as SECRET_VARIABLE
from s3t.store.secret import read_secret
from s3t.store.slices import Slices

if TYPE_CHECKING:
    from s3t.deletion.lookup import Lookup
    from s3t.deletion.protocol import Deleter
    from s3t.records.public import Public
    from s3t.run.answerer import Answerer
    from s3t.run.approvals import Approvals
    from s3t.run.workshop import Workshop
    from s3t.run.writer import Writer
    from s3t.training.stage import Keeper


class LazyWorkshop:
    """A run's workshop, with the base model and all else that is in memory. Safe to share among threads.

    It is made when it is first needed: until then neither torch nor the base model is loaded.
    """

    def __init__(self, load: Callable[[], Workshop]) -> None:
        self._load = load
        self._made: Workshop | None = None
        self._making = threading.Lock()

    def get(self) -> Workshop:
        with self._making:
            if self._made is None:
                self._made = self._load()
            return self._made

    def train(
        self,
        stage: Stage,
        snapshot: Snapshot,
        progress: Progress = silent,
        checkpoints: Callable[[str], Keeper] | None = None,
    ) -> tuple[str, bytes, Manifest]:
        """As `Workshop.train`: stores nothing."""
        try:
            return self.get().train(stage, snapshot, progress, checkpoints)
        except (IsolationError, TrainingError):
            self.drop()  # the model in memory may not be the base model any more
            raise

    def forget(self, places: Collection[Place]) -> None:
        if (made := self._made) is not None:  # read once: another thread may close the run
            made.material.forget(places)

    def forget_stale(self, snapshot: Snapshot) -> None:
        """Drop what is in memory of records and stages that a snapshot does not have."""
        if (made := self._made) is not None:
            made.forget_stale(snapshot)

    def drop(self) -> None:
        self._made = None


class Parts:
    """The values of a run's folder, and the roles made of them, with which a `Run` works."""

    def __init__(self, path: Path) -> None:
        with suppress(ValueError):  # `read_layout` refuses a name that no folder can have
            # The folder itself: links to it may change, and leftovers are beside it.
            path = Path(os.path.realpath(path))
        layout = Layout(path.absolute())
        recipe, fields, description = read_layout(layout)
        with storage_errors("opening the run"):
            folder = OpenedFolder.of(layout.root)
        ledger = Ledger.open(address_of(layout, description), folder=folder)
        try:
            self.secret = secret = _checked_secret(layout, recipe, fields, description, ledger)
            self.layout, self.recipe, self.description = layout, recipe, description
            self.ledger, self.lock = ledger, ledger.lock(layout.lock)
            part = training_part(recipe, labels=description.labels, validation=description.validation)
            self.key_inputs = KeyInputs(secret=secret, base_digest=description.base_digest, training_part=part)
            self.orders = Orders(layout, description, secret)
            self.store = Artifacts(open_blobs(layout, description, "artifacts", within=folder))
            self.slices = slices_of(layout, description, secret, within=folder)
            # Not of `self`: a cycle would keep a dropped run's session open.
            slices, store, key_inputs, public = self.slices, self.store, self.key_inputs, self.public

            def load() -> Workshop:
                from s3t.run.workshop import Workshop  # here: it imports torch

                return Workshop(
                    slices=slices,
                    tmp=layout.tmp,
                    recipe=recipe,
                    labels=description.labels,
                    inputs=key_inputs,
                    store=store,
                    public=public,
                )

            self.loaded = LazyWorkshop(load)
            self.witness = Witness.of_run(description.run)
            self.withdrawer = Withdrawer(
                ledger=ledger,
                memory=ExportMemory.of_run(description.run),
                hook=tuple(recipe.deletion.export_hook or ()),
            )
            self.latest = Latest(
                run=layout.root,
                ledger=ledger,
                orders=self.orders,
                store=self.store,
                recipe=recipe,
                only_serves=secret.salt is None,
            )
            self.eraser = Eraser(
                ledger=ledger,
                store=self.store,
                secret=secret,
                run=layout.root,
                slices=self.slices,
                within=recipe.deletion.erase_within,
                memory=self.loaded,
                witness=self.witness,
                lock=self.lock,
                withdrawer=self.withdrawer,
            )
            this = weakref.ref(self)  # a cycle would keep a dropped run's session open

            def carry_out() -> dict[str, S3TError]:
                parts = this()
                return {} if parts is None else parts.approvals.carry_out_approved()

            self.upkeep = Upkeep(layout, description.run, self.latest, self.eraser, self.loaded, carry_out)
            self.presence = Presence(ledger, self.upkeep)
        except BaseException:
            ledger.close()
            raise

    @cached_property
    def approvals(self) -> Approvals:
        from s3t.run.approvals import Approvals

        return Approvals(self)

    # Not every command looks names up, deletes, answers or trains. Two threads may make one each: nothing is kept in
    # them.

    @cached_property
    def answerer(self) -> Answerer:
        from s3t.run.answerer import Answerer

        return Answerer(self)

    @cached_property
    def writer(self) -> Writer:
        from s3t.run.writer import Writer

        return Writer(self.answerer)

    @cached_property
    def lookup(self) -> Lookup:
        from s3t.deletion.lookup import Lookup

        return Lookup(ledger=self.ledger, secret=self.secret, slices=self.slices, recipe=self.recipe)

    @cached_property
    def deleter(self) -> Deleter:
        from s3t.deletion.acceptance import Acceptor
        from s3t.deletion.protocol import Deleter

        # Orders are for the report, and whether a server has to move; the ledger's stages decide what goes.
        acceptor = Acceptor(self.ledger, self.latest.inventory, self.witness)
        return Deleter(acceptor, self.lookup, self.eraser, self.presence)

    def close(self) -> None:
        self.presence.close()
        self.ledger.close()
        self.loaded.drop()

    def check_trainable(self) -> None:
        """Refuse, before anything is done for new stages, if the secret was destroyed, perhaps by another process."""
        if self.ledger.key_destroyed_at() is not None:
            Secret.destroyed().reveal()

    def check_changeable(self) -> None:
        """Look, before anything is changed, whether the folder is the run's home, and can be written to."""
        with after_refusal(NOTHING_CHANGED):
            self.ledger.check_place()
            if is_read_only(self.layout.root):
                raise read_only_error(str(self.layout.root))
            if (error := moved_error(self.layout, run=self.description.run)) is not None:
                raise error

    def note_home(self, *, moved: bool) -> None:
        """Note the folder as the run's home, if there is no note yet or the run was moved.

        With `moved` the user says that this is the run, and no copy; that is refused if the run is still at the noted
        path. Without it, a disk that refuses is an error only if an fsync failed.
        """
        if moved:
            error = moved_error(self.layout, run=self.description.run)
            if error is not None and error.certainly_a_copy:
                raise error
            with after_refusal(NOTHING_CHANGED), hold(self.lock), storage_errors("noting the run's home"):
                write_home(self.layout, Home.of(self.layout.root))
        elif not self.layout.home.exists() and not is_read_only(self.layout.root):
            try:
                with self.lock.try_hold(wait=0) as mine, storage_errors("noting the run's home"):
                    if mine:
                        write_home(self.layout, Home.of(self.layout.root))
            except FsyncError:
                raise
            except StorageError:  # the next opening tries again
                logging.getLogger("s3t").debug("the run's home could not be noted", exc_info=True)

    @property
    def present_recipe(self) -> Recipe:
        """The recipe, with the budget and the policy of repair that the run has now."""
        return self.orders.described().present(self.recipe)

    def labels_at(self, now: Snapshot) -> tuple[str, ...]:
        """The label set in the order of a head's outputs: that of init, and what additions brought."""
        return (*self.description.labels, *(new.label for new in now.new_labels))

    @property
    def public(self) -> Public | None:
        """The public records, if stages are tried on some."""
        if (digest := self.description.validation) is None:
            return None
        from s3t.records.public import Public  # here: few runs have some, and it imports the readers of records

        return Public(path=self.layout.public, digest=digest)

    @cached_property
    def guess(self) -> float | None:
        """Best score of the same answer to every public record; None without any, or where they are damaged."""
        target, labels, best = self.recipe.task.target, self.description.labels, None
        if self.public is not None:
            with suppress(IntegrityError):  # training and audits tell of it
                expected = target.expected(self.public.rows)
                guesses = [target.metrics(given, expected, labels) for given in target.guesses(expected)]
                best = max(map(target.score, guesses), default=None)
        return best


def _checked_secret(
    layout: Layout, recipe: Recipe, fields: dict[str, Any], description: Description, ledger: Ledger
) -> Secret:
    """The secret of a run, once its describing files and its ledger are found to be its own."""
    if ledger.key_was_destroyed:
        secret = Secret.destroyed()  # wherever it, or a part of it, may still lie
    else:
        secret = read_secret(layout.secret, check=description.secret_check)
        if secret.salt is None:
            raise IntegrityError(
                f"{layout.secret}: the run's secret is missing; put it back, or set {SECRET_VARIABLE} to it"
            )
        check_files(layout, fields, secret)
        ledger.check_rows(secret.key("row"))
    if left := unresolved(recipe):
        raise RunFolderError(
            str(layout.root),
            f"was made by an earlier state of s3t {description.version}, which knew no {' or '.join(left)}, so "
            "this one cannot tell how its stages were trained: use the one that made it, or make a new run",
        )
    return secret


def slices_of(layout: Layout, description: Description, secret: Secret, *, within: OpenedFolder) -> Slices:
    """The slices of a run; `within`: its folder as it was opened."""
    return Slices(blobs=open_blobs(layout, description, "slices", within=within), secret=secret, run=layout.root)
