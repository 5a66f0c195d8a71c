"""Everything concrete of an open run, wired in one place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from s3t.deletion.acceptance import Acceptor
from s3t.deletion.deleter import Deleter
from s3t.deletion.erasure import Eraser
from s3t.deletion.reconcile import Reconciler
from s3t.deletion.witness import Witness
from s3t.errors import IntegrityError
from s3t.inventory import Inventory
from s3t.ledger import Ledger, LogEntry, Snapshot
from s3t.ledger.locks import RunLock
from s3t.ledger.presence import Presence
from s3t.partition import Place, Secret
from s3t.recipe import Recipe
from s3t.records.public import Public
from s3t.run.layout import Description, Layout, read_erasures, read_layout, write_erasures
from s3t.run.ledger_address import ledger_address
from s3t.run.orders import Orders
from s3t.run.secret import VARIABLE as SECRET_VARIABLE
from s3t.run.secret import read_secret
from s3t.run.unfinished import remove_unfinished
from s3t.run.validation import Validation
from s3t.stages import KeyInputs, training_part
from s3t.store import LocalStore


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
    store: LocalStore
    validation: Validation
    presence: Presence
    witness: Witness
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
        layout = Layout(path.absolute())  # so that it is found after a change of folder, also in a core dump
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
        orders, lock = Orders(layout, description), ledger.lock(layout.lock)
        store = LocalStore(layout.artifacts, tmp=layout.tmp)
        presence, witness = Presence(ledger, moved=moved, meanwhile=meanwhile), Witness.of_run(description.run)
        eraser = Eraser(
            ledger=ledger,
            store=store,
            secret=secret,
            run=layout.root,
            slices=layout.slices,
            tmp=layout.tmp,
            within=recipe.deletion.erase_within,
            forget=forget,
            unfinished=lambda: remove_unfinished(layout.root),
            mark=lambda count: write_erasures(layout, count),
        )
        # Orders and store are for the report, and for whether a server has to move; what goes, the ledger's stages
        # decide.
        prototypes = recipe.method.has_prototypes
        validation = Validation(store, chooses=recipe.prediction.select == "validation")
        acceptor = Acceptor(
            ledger,
            inventory=lambda snapshot: validation.scored(snapshot.inventory(orders.now(), prototypes=prototypes)),
        )
        deleter = Deleter(
            ledger=ledger, acceptor=acceptor, eraser=eraser, witness=witness, presence=presence, lock=lock
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
            validation=validation,
            presence=presence,
            witness=witness,
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

    def inventory(self, snapshot: Snapshot) -> Inventory:
        """What is alive: committed, untainted, and in the store."""
        prototypes = self.recipe.method.has_prototypes
        found = snapshot.inventory(self.orders.now(), prototypes=prototypes).keeping(self.store.present())
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

    def erasures(self) -> int:
        """How often slices were rewritten in this folder."""
        return read_erasures(self.layout)

    def reconciler(self) -> Reconciler:
        """What applies later deletions to an older state of the run."""
        return Reconciler(
            ledger=self.ledger,
            witness=self.witness,
            eraser=self.eraser,
            secret=self.secret,
            inventory=self.inventory,
            erasures=self.erasures,
        )
