"""A run's workshop, made when it is first needed: until then neither torch nor the base model is loaded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from s3t.errors import IsolationError, TrainingError
from s3t.ledger import Snapshot
from s3t.partition import Place
from s3t.run.parts import Parts
from s3t.stages import Stage
from s3t.store import Manifest

if TYPE_CHECKING:
    from s3t.run.workshop import Workshop


class LazyWorkshop:
    """The workshop of one open run. Safe to share among threads."""

    def __init__(self) -> None:
        self._made: Workshop | None = None
        self._making = threading.Lock()

    def of(self, parts: Parts) -> Workshop:
        """The workshop, with its base model."""
        with self._making:
            if self._made is None:
                from s3t.run.workshop import Workshop  # here: it imports torch

                self._made = Workshop(
                    slices=parts.slices,
                    tmp=parts.layout.tmp,
                    recipe=parts.recipe,
                    labels=parts.description.labels,
                    inputs=parts.key_inputs,
                    store=parts.store,
                    public=parts.public,
                )
            return self._made

    def train(
        self, parts: Parts, stage: Stage, snapshot: Snapshot, **listeners: Callable[[Any], None]
    ) -> tuple[str, bytes, Manifest]:
        """Train one stage; stores nothing. Listeners are those of `Workshop.train`."""
        try:
            return self.of(parts).train(stage, snapshot, **listeners)
        except (IsolationError, TrainingError):
            self.drop()  # the model in memory may not be the base model any more
            raise

    def forget(self, places: Collection[Place]) -> None:
        """Drop what is in memory of slices."""
        if (made := self._made) is not None:  # read once: another thread may close the run
            made.forget(places)

    def forget_stale(self, snapshot: Snapshot) -> None:
        """Drop what is in memory of records and stages that a snapshot does not have."""
        if (made := self._made) is not None:
            made.forget_stale(snapshot)

    def drop(self) -> None:
        """Let go of the base model and of all that is in memory."""
        self._made = None
