"""Everything concrete of an open run, wired in one place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from s3t.aftermath import NOTHING_CHANGED, after_refusal
from s3t.blobs import Blobs, LocalBlobs
from s3t.deletion.acceptance import Acceptor
from s3t.deletion.deleter import Deleter
from s3t.deletion.erasure import Eraser
from s3t.deletion.lookup import Lookup
from s3t.deletion.reconcile import Reconciler
from s3t.deletion.witness import Witness
from s3t.disk import storage_errors
from s3t.errors import FsyncError, IntegrityError, StorageError
from s3t.inventory import Inventory
from s3t.ledger import Ledger, LogEntry, Snapshot
from s3t.ledger.locks import RunLock, held, needed
from s3t.ledger.presence import Presence
from s3t.ledger.read_only import is_read_only, read_only_error
from s3t.partition import Place, Secret
from s3t.recipe import Recipe
from s3t.records import Slices
from s3t.records.public import Public
from s3t.run.home import Home, moved_error, write_home
from s3t.run.layout import Description, Layout, check_files, read_layout
from s3t.run.ledger_address import ledger_address
from s3t.run.orders import Orders
from s3t.run.secret import VARIABLE as SECRET_VARIABLE
from s3t.run.secret import read_secret
from s3t.run.unfinished import remove_unfinished
from s3t.run.validation import Validation
from s3t.stages import KeyInputs, training_part
from s3t.store import Artifacts, lost_stages


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What a `Run` works with."""

    layout: Layout
    recipe: Recipe
    description: Description
    secret: Secret
    key_inputs: KeyInputs
    orders: Orders
    ledger: Ledger
    lock: RunLock
    store: Artifacts
    slices: Slices
    validation: Validation
    presence: Presence
    witness: Witness
    lookup: Lookup
    eraser: Eraser
    deleter: Deleter

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        forget: Callable[[Collection[Place]], None],
        moved: Callable[[Snapshot], None],
        meanwhile: Callable[[], None],
    ) -> Parts:
        """The parts of the run in a folder.

        Args:
            path: the folder.
            forget: drops what is in memory of slices.
            moved: told of every newer state of the ledger.
            meanwhile: called now and then while the run is in use.

        Raises:
            RunFolderError: the folder is no run, or a newer version's.
            IntegrityError: a describing file is damaged, or the ledger or the secret is missing.
        """
        layout = Layout(path.absolute())  # so that it is found after a change of folder
        recipe, description = read_layout(layout)
        ledger = Ledger.open(ledger_address(layout, url=description.ledger, run=description.run))
        try:
            if ledger.key_destroyed_at() is not None:
                secret = Secret.destroyed()  # wherever it, or a part of it, may still lie
            else:
                secret = read_secret(layout.secret, check=description.secret_check)
                if secret.salt is None:
                    raise IntegrityError(
                        f"{layout.secret}: the run's secret is missing; put it back, or set {SECRET_VARIABLE} to it"
                    )
                check_files(layout, secret)
                ledger.check_rows(secret.key("row"))
            return cls._wired(
                layout, recipe, description, secret, ledger, forget=forget, moved=moved, meanwhile=meanwhile
            )
        except BaseException:
            ledger.close()
            raise

    @classmethod
    def _wired(
        cls,
        layout: Layout,
        recipe: Recipe,
        description: Description,
        secret: Secret,
        ledger: Ledger,
        *,
        forget: Callable[[Collection[Place]], None],
        moved: Callable[[Snapshot], None],
        meanwhile: Callable[[], None],
    ) -> Parts:
        key_inputs = KeyInputs(
            secret=secret,
            base_digest=description.base_digest,
            training_part=training_part(recipe, labels=description.labels, validation=description.validation),
        )
        orders, lock = Orders(layout, description, secret), ledger.lock(layout.lock)
        blobs = LocalBlobs(layout.artifacts, tmp=layout.tmp)
        store = Artifacts(blobs)
        slices = slices_of(layout, secret)
        presence, witness = Presence(ledger, moved=moved, meanwhile=meanwhile), Witness.of_run(description.run)
        eraser = _eraser(layout, recipe, secret, ledger, blobs, slices, forget)
        # Orders are for the report, and whether a server has to move; the ledger's stages decide what goes.
        prototypes = recipe.method.has_prototypes
        validation = Validation(store, chooses=recipe.prediction.select == "validation")
        acceptor = Acceptor(
            ledger,
            inventory=lambda snapshot: validation.scored(snapshot.inventory(orders.now(), prototypes=prototypes)),
        )
        lookup = _lookup(slices, recipe, secret, ledger)
        deleter = Deleter(
            ledger=ledger,
            acceptor=acceptor,
            lookup=lookup,
            eraser=eraser,
            witness=witness,
            presence=presence,
            lock=lock,
        )
        return cls(
            layout=layout,
            recipe=recipe,
            description=description,
            secret=secret,
            key_inputs=key_inputs,
            orders=orders,
            ledger=ledger,
            lock=lock,
            store=store,
            slices=slices,
            validation=validation,
            presence=presence,
            witness=witness,
            lookup=lookup,
            eraser=eraser,
            deleter=deleter,
        )

    def close(self) -> None:
        """End the session and release the ledger."""
        self.presence.close()
        self.ledger.close()

    def check_trainable(self) -> None:
        """Look, before anything is done for stages to come, whether they can be trained.

        Raises:
            KeyDestroyedError: the run's secret was destroyed, perhaps by another process.
            ClosedError: the run was closed.
        """
        if self.ledger.key_destroyed_at() is not None:
            Secret.destroyed().reveal()

    def check_changeable(self) -> None:
        """Look, before anything is changed, whether the folder is the run's home, and can be written to.

        Raises:
            StorageError: its file system is mounted read-only.
            MovedError: it is a copy, or was moved; nothing was changed.
        """
        with after_refusal(NOTHING_CHANGED):
            if is_read_only(self.layout.root):
                raise read_only_error(str(self.layout.root))
            if (error := moved_error(self.layout, run=self.description.run)) is not None:
                raise error

    def note_home(self, *, moved: bool) -> None:
        """Note the folder as the run's home, if there is no note yet or the run was moved.

        Args:
            moved: the user says that this is the run, and no copy.

        Raises:
            MovedError: at the noted path there still is the run.
            StorageError: the disk refused, and the user had said so.
        """
        if moved:
            error = moved_error(self.layout, run=self.description.run)
            if error is not None and error.certainly_a_copy:
                raise error
            with after_refusal(NOTHING_CHANGED), needed(self.lock), storage_errors("noting the run's home"):
                write_home(self.layout, Home.of(self.layout.root))
        elif not self.layout.home.exists() and not is_read_only(self.layout.root):
            try:
                with held(self.lock, wait=0) as mine, storage_errors("noting the run's home"):
                    if mine:
                        write_home(self.layout, Home.of(self.layout.root))
            except FsyncError:
                raise
            except StorageError:  # the next opening tries again
                logging.getLogger("s3t").debug("the run's home could not be noted", exc_info=True)

    def inventory(self, snapshot: Snapshot) -> Inventory:
        """What is alive: committed and untainted; after the secret was destroyed, also in the store."""
        prototypes = self.recipe.method.has_prototypes
        found = snapshot.inventory(self.orders.now(), prototypes=prototypes)
        if self.secret.salt is None:  # what is lost nobody can train again; a backup may bring it back
            lost = lost_stages(self.store, found.alive)
            alive = {stage: key for stage, key in found.alive.items() if stage not in lost}
            found = replace(found, alive=alive)
        return self.validation.scored(found)

    def unfinished(self) -> tuple[LogEntry, ...]:
        """Deletions that are not erased yet."""
        with self.ledger.reading() as transaction:
            return tuple(transaction.unfinished())

    @property
    def public(self) -> Public | None:
        """The public records, if stages are tried on some."""
        digest = self.description.validation
        return None if digest is None else Public(path=self.layout.public, digest=digest)

    def reconciler(self) -> Reconciler:
        """What applies later deletions to an older state of the run."""
        return Reconciler(
            ledger=self.ledger,
            witness=self.witness,
            eraser=self.eraser,
            secret=self.secret,
            inventory=self.inventory,
        )


def slices_of(layout: Layout, secret: Secret) -> Slices:
    """The slices in a run's folder."""
    return Slices(blobs=LocalBlobs(layout.slices, tmp=layout.tmp), secret=secret, run=layout.root)


def _lookup(slices: Slices, recipe: Recipe, secret: Secret, ledger: Ledger) -> Lookup:
    group = recipe.partition.group
    return Lookup(
        ledger=ledger,
        secret=secret,
        slices=slices,
        counts=(recipe.partition.shards, recipe.partition.slices),
        spread=(None,) if group is None else tuple(map(group.among, group.slices)),
        has_subjects=recipe.columns.subject is not None,
    )


def _eraser(
    layout: Layout,
    recipe: Recipe,
    secret: Secret,
    ledger: Ledger,
    blobs: Blobs,
    slices: Slices,
    forget: Callable[[Collection[Place]], None],
) -> Eraser:
    return Eraser(
        ledger=ledger,
        store=Artifacts(blobs),
        blobs=blobs,
        secret=secret,
        run=layout.root,
        slices=slices,
        within=recipe.deletion.erase_within,
        forget=forget,
        unfinished=lambda: remove_unfinished(layout.root),
    )
