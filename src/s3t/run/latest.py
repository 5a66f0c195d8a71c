"""The present state of a run. Reading it changes nothing."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from s3t.core import Growth, Inventory
from s3t.errors import RestoredError, StorageError
from s3t.ledger import Ledger, Snapshot
from s3t.recipe import Recipe
from s3t.run.orders import Orders
from s3t.store.artifacts import Artifacts, lost_stages
from s3t.store.folder import Description


@dataclass(kw_only=True)
class Latest:
    """The newest state of one open run. Safe to share among threads."""

    run: Path
    """The run's folder, for messages."""
    ledger: Ledger
    orders: Orders
    store: Artifacts
    recipe: Recipe
    only_serves: bool
    """True if the run's secret was destroyed."""
    _newest: int = field(default=0, init=False)
    _scores: dict[str, float] = field(default_factory=dict, init=False)  # a manifest never changes under its key
    _inventory: tuple[Snapshot, Description, Inventory] | None = field(default=None, init=False)  # the last one made
    _growth: tuple[Description, Growth] | None = field(default=None, init=False)  # of the description read last
    _scoring: threading.Lock = field(default_factory=threading.Lock, init=False)

    def snapshot(self) -> Snapshot:
        """The ledger now. It never goes back, unless an operator puts an old one in its place (RestoredError)."""
        seen = self._newest  # before the ledger is asked: another thread may see a newer one meanwhile
        snapshot = self.ledger.snapshot()
        if snapshot.generation < seen:
            raise RestoredError(
                f"the ledger of {self.run} went back from generation {seen} to {snapshot.generation}: a backup was put "
                f"back. Run `s3t reconcile {self.run}`"
            )
        self._newest = max(self._newest, snapshot.generation)
        return snapshot

    def recent(self) -> Snapshot | None:
        """The state that was read last, by any thread, without asking the ledger; None before the first, and where it
        is older than one seen before: `snapshot` says whether a backup was put back.
        """
        recent = self.ledger.recent()
        return None if recent is not None and recent.generation < self._newest else recent

    def inventory(self, snapshot: Snapshot) -> Inventory:
        """The live stages: committed and untainted; after the secret was destroyed, also in the store."""
        described, made = self.orders.described(), self._inventory
        if made is not None and made[0] is snapshot and made[1] is described:
            return made[2]
        inventory = self.inventory_of(snapshot, described)
        self._inventory = None if self.only_serves else (snapshot, described, inventory)
        return inventory

    def answering(self, snapshot: Snapshot) -> Inventory:
        """As `inventory`, to choose what serves: a StorageError if the store refuses a score."""
        inventory = self.inventory(snapshot)
        if inventory.scores is not None:
            ends = {inventory.alive[stage]: stage.shard for stages in inventory.serving_all for stage in stages}
            unknown = [(shard, key) for key, shard in ends.items() if key not in inventory.scores]
            if any(self.store.manifest(*artifact) is not None for artifact in unknown):  # it was refused before
                self._inventory = None
                return self.answering(snapshot)
        return inventory

    def inventory_of(self, snapshot: Snapshot, described: Description) -> Inventory:
        """The inventory under a run.json, the present one or a proposal."""
        known = self._growth
        if known is None or known[0] is not described:
            # From declared numbers: with costs that the ledger measures, the choice of stages would follow from records
            known = self._growth = described, described.present(self.recipe).growth(described.orders)
        inventory = snapshot.inventory(
            known[1],
            of_slices=self.recipe.method.of_slices,
            alone=not self.recipe.method.trains or self.recipe.prediction.prototypes_alone,
            readouts=self.recipe.readouts,
        )
        if self.only_serves:  # a lost stage cannot be trained again; a backup may bring it back
            lost = lost_stages(self.store, inventory.alive)
            alive = {stage: key for stage, key in inventory.alive.items() if stage not in lost}
            inventory = replace(inventory, alive=alive)
        return self._scored(inventory) if self.recipe.prediction.select == "validation" else inventory

    def _scored(self, inventory: Inventory) -> Inventory:
        """The inventory, with the score on public records of the deepest live prefix of every order."""
        stages = {stage for stages in inventory.serving_all for stage in stages}
        with self._scoring:
            known, self._scores = self._scores, {}
            for stage in stages:
                key = inventory.alive[stage]
                score = known.get(key)
                with suppress(StorageError):  # reports do without; `answering` does not
                    if score is None and (manifest := self.store.manifest(stage.shard, key)) is not None:
                        score = manifest.validation
                if score is not None:
                    self._scores[key] = score
            return replace(inventory, scores=dict(self._scores))
