"""Checkpoints: what the training of a stage needs to go on after a kill. The bytes are those of an undisturbed one.

A checkpoint follows from the records that its stage was trained on so far. So it is known to the ledger as a stage's
artifact is: announced before it is put, and condemned by a deletion in one of the stage's slices, when the stage is
committed, when a later one is there, and when a training ends that does not want the stage any more.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING

from s3t.core import Place, Stage
from s3t.errors import FsyncError, IntegrityError, StorageError
from s3t.ledger import SliceState, Trained
from s3t.run.parts import Parts
from s3t.store.artifacts import blobs_of
from s3t.store.disk import storage_errors

if TYPE_CHECKING:
    from s3t.run.training import StageReport


@dataclass
class Checkpoints:
    """The checkpoints of one stage, which this process trains."""

    parts: Parts
    stage: Stage
    seen: Mapping[Place, SliceState]
    parents: Mapping[Stage, str]
    report: StageReport
    key: str
    """A digest of the stage's key, and of the environment in which it is trained."""
    _since: float = field(default_factory=time.monotonic, init=False)

    def found(self) -> bytes | None:
        """The newest checkpoint of the stage from the same slices and parents; None if there is none that is whole."""
        if self.parts.recipe.training.checkpoint_minutes is None:
            return None
        with self.parts.ledger.reading() as transaction:
            kept = transaction.checkpoint(self.stage)
        if kept is not None and kept.stage_key == self.key:
            with suppress(OSError), self.parts.store.blobs.open(self._name(kept.key)) as file:
                content = file.read()
                if sha256(content).hexdigest() == kept.digest:
                    self.report.resume(kept.seconds)
                    return content
        return None

    def due(self) -> bool:
        minutes = self.parts.recipe.training.checkpoint_minutes
        return minutes is not None and time.monotonic() - self._since >= 60 * minutes

    def keep(self, content: bytes) -> None:
        """Keep a checkpoint in the place of the one before, unless a deletion has overtaken the stage."""
        made = Trained(
            stage=self.stage,
            key=secrets.token_hex(32),
            manifest=sha256(content).hexdigest(),
            session=self.parts.presence.session,
            seen=self.seen,
            parents=self.parents,
            seconds=self.report.seconds,
        )
        doing = f"storing a checkpoint of {self.stage}"
        with storage_errors(doing), self.parts.ledger.writing() as transaction:
            announced = transaction.announce(made)
        if announced:
            put = False
            try:
                with storage_errors("writing it"):
                    self.parts.store.blobs.put(self._name(made.key), content)
                put = True
            except FsyncError:
                raise
            except (StorageError, IntegrityError) as error:  # the stage may fit where its checkpoint does not
                logging.getLogger("s3t.run").warning("no checkpoint of %s: %s", self.stage, error)
            with storage_errors(doing), self.parts.ledger.writing() as transaction:
                transaction.keep(made, stage_key=self.key, put=put)
        self._since = time.monotonic()

    def _name(self, key: str) -> str:
        return blobs_of(self.stage.shard, key)[0]
