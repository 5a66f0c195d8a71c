"""A run's workshop, made when it is first needed: until then neither torch nor the base model is loaded."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from s3t.core import KeyInputs, Place, Stage
from s3t.errors import IsolationError, TrainingError
from s3t.events import Progress, silent
from s3t.ledger import Snapshot
from s3t.recipe import Recipe
from s3t.store.artifacts import Artifacts, Manifest
from s3t.store.slices import Slices

if TYPE_CHECKING:
    from s3t.records.public import Public
    from s3t.run.workshop import Workshop


@dataclass(kw_only=True)
class LazyWorkshop:
    """The workshop of one open run, with the base model and all else that is in memory. Safe to share among threads."""

    slices: Slices
    tmp: Path
    recipe: Recipe
    labels: Sequence[str]
    inputs: KeyInputs
    store: Artifacts
    public: Public | None
    _made: Workshop | None = field(default=None, init=False)
    _making: threading.Lock = field(default_factory=threading.Lock, init=False)

    def get(self) -> Workshop:
        with self._making:
            if self._made is None:
                from s3t.run.workshop import Workshop  # here: it imports torch

                self._made = Workshop(
                    slices=self.slices,
                    tmp=self.tmp,
                    recipe=self.recipe,
                    labels=self.labels,
                    inputs=self.inputs,
                    store=self.store,
                    public=self.public,
                )
            return self._made

    def train(self, stage: Stage, snapshot: Snapshot, progress: Progress = silent) -> tuple[str, bytes, Manifest]:
        """As `Workshop.train`: stores nothing."""
        try:
            return self.get().train(stage, snapshot, progress)
        except (IsolationError, TrainingError):
            self.drop()  # the model in memory may not be the base model any more
            raise

    def forget(self, places: Collection[Place]) -> None:
        if (made := self._made) is not None:  # read once: another thread may close the run
            made.forget(places)

    def forget_stale(self, snapshot: Snapshot) -> None:
        """Drop what is in memory of records and stages that a snapshot does not have."""
        if (made := self._made) is not None:
            made.forget_stale(snapshot)

    def drop(self) -> None:
        self._made = None
