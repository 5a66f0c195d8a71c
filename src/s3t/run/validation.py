"""Which live order of a shard is the best on public records, by what its manifest says."""

from __future__ import annotations

import threading
from dataclasses import replace

from s3t.inventory import Inventory
from s3t.stages import Stage
from s3t.store import Artifacts


class Validation:
    """Adds the scores of live prefixes to an inventory. Safe to share among threads.

    Args:
        store: of the artifacts and their manifests.
        chooses: whether scores are looked at; else inventories stay as they are.
    """

    def __init__(self, store: Artifacts, *, chooses: bool) -> None:
        self._store = store
        self._chooses = chooses
        self._known: dict[str, float] = {}  # a manifest never changes under its key
        self._lock = threading.Lock()

    def scored(self, inventory: Inventory) -> Inventory:
        """The inventory, with the score of the deepest live prefix of every order."""
        if not self._chooses:
            return inventory
        stages = {
            Stage(shard, serving.prefix)
            for shard in range(len(inventory.orders))
            for serving in inventory.serving_all(shard)
        }
        with self._lock:
            known, self._known = self._known, {}
            for stage in stages:
                key = inventory.alive[stage]
                score = known.get(key)
                if score is None and (manifest := self._store.manifest(stage.shard, key)) is not None:
                    score = manifest.validation
                if score is not None:
                    self._known[key] = score
            return replace(inventory, scores=dict(self._known))
