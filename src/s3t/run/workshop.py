"""The loaded base model of a run, and what is done with it: train a stage, give a prefix's logits.

Imports torch; `Run` makes a workshop when it first needs one.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import torch

from s3t.errors import IntegrityError
from s3t.ledger import Snapshot
from s3t.models.assembly import assemble
from s3t.models.encode import Encoded
from s3t.models.source import model_digest, model_folder
from s3t.models.stacked import Link, prepare
from s3t.models.tensors import pack, unpack
from s3t.partition import Place
from s3t.prediction.aggregate import Scores
from s3t.prediction.ensemble import Ensemble
from s3t.prediction.resident import Resident
from s3t.recipe import Recipe
from s3t.records import read_slice
from s3t.stages import KeyInputs, Stage, stage_key, stage_seed
from s3t.store import Artifact, ArtifactStore, Manifest, Parent, read_chain
from s3t.training import Examples, environment, exact_numerics, resolve_device, train_stage

WINDOW_BATCHES = 64
"""Of texts that are encoded at a time for an answer. Images, which are large, and all of one size, are encoded batch by
batch."""


class Workshop:
    """One base model in memory, the encoded slices that training has gone through, and the links that have answered."""

    def __init__(
        self,
        *,
        slices: Path,
        recipe: Recipe,
        labels: Sequence[str],
        inputs: KeyInputs,
        store: ArtifactStore,
    ) -> None:
        folder = model_folder(recipe.base_model, revision=recipe.revision)
        if model_digest(folder) != inputs.base_digest:
            raise IntegrityError(
                f"the base model in {folder} has changed since the run was made; put the old one back, or make a new "
                "run"
            )
        self._slices = slices
        self._recipe = recipe
        self._labels = labels
        self._inputs = inputs
        self._store = store
        self._model, self._encoder = assemble(folder, recipe, labels=max(1, len(labels)))
        self._model.base.model.to(resolve_device(recipe.training.device))
        # Encoded slices with their digest: one that lost a record has another, and forget() drops the old.
        self._remembering = threading.RLock()
        self._encoded: dict[Place, tuple[str, Sequence[Encoded], torch.Tensor]] = {}
        self._resident = Resident(recipe.prediction.adapter_memory)
        self._ensemble = Ensemble(
            self._model,
            self._encoder,
            training=recipe.training,
            batch_size=recipe.prediction.batch_size,
            window_batches=WINDOW_BATCHES if recipe.task.is_text else 1,
        )

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self._model.base.model.parameters()).device

    def environment(self) -> dict[str, str]:
        """The numeric environment of this process."""
        return environment(self.device)

    def forget(self, places: Collection[Place]) -> None:
        """Drop what is in memory of slices that lost a record."""
        with self._remembering:
            for place in places:
                self._encoded.pop(place, None)

    def forget_stale(self, snapshot: Snapshot) -> None:
        """Drop what is in memory of slices that have lost a record, or are losing one, and of stages that are not alive
        any more, by whosever hand.
        """
        self._resident.keep(snapshot.stages.values())
        self.forget(
            [
                place
                for place, known in list(self._encoded.items())
                if known[0] != snapshot.slices[place].digest or snapshot.slices[place].pending
            ]
        )

    def train(
        self, stage: Stage, snapshot: Snapshot, *, on_step: Callable[[int], None] = lambda records: None
    ) -> tuple[str, bytes, Manifest]:
        """Train a stage from the slices and the parents of a snapshot; its key, tensor file and manifest.

        Raises:
            IntegrityError: a slice file or a parent is not what the ledger and the manifests say.
        """
        digests = snapshot.digests(stage)
        parents = self._parents(stage, snapshot)
        above = parents[-1].manifest if parents else None
        key = stage_key(self._inputs, stage, slice_digests=digests, parent=None if above is None else above.key)
        trained = train_stage(
            self._model,
            parents=[unpack(artifact.content) for artifact in parents],
            examples=self._examples(stage, digests),
            encoder=self._encoder,
            training=self._recipe.training,
            seed=partial(stage_seed, self._recipe.training.seed, stage),
            on_step=on_step,
        )
        content = pack(trained.tensors)
        manifest = Manifest(
            key=key,
            shard=stage.shard,
            prefix=stage.prefix,
            slice_digests=digests,
            base_digest=self._inputs.base_digest,
            seed=self._recipe.training.seed,
            precision=self._recipe.training.precision,
            threads=self._recipe.training.threads,
            steps=trained.steps,
            environment=self.environment(),
            sha256=hashlib.sha256(content).hexdigest(),
            parent=None if above is None else Parent(key=above.key, sha256=above.sha256),
        )
        return key, content, manifest

    def chain(self, stage: Stage, snapshot: Snapshot) -> list[Link]:
        """The links of a live prefix, ready to answer; each artifact was checked against its manifest and its parent.

        Raises:
            IntegrityError: one of them is not what it should be.
        """

        def prepared(block: int, artifact: Artifact) -> Link:
            return prepare(self._model.base, self._model.adapter, block, unpack(artifact.content))

        with exact_numerics(self.device, self._recipe.training):  # and no thread has blocks on the model meanwhile
            return self._resident.chain(
                [snapshot.stages[link] for link in stage.chain],
                read=lambda: self._artifacts(stage, snapshot),
                prepare=prepared,
            )

    def logits(
        self,
        stages: Sequence[Stage],
        snapshot: Snapshot,
        inputs: pa.Table,
        *,
        on_batch: Callable[[int], None] = lambda count: None,
    ) -> Scores:
        """The logits of live prefixes, M x N x C.

        Raises:
            IntegrityError: as `chain`.
        """
        return self._ensemble.logits([self.chain(stage, snapshot) for stage in stages], inputs, on_batch=on_batch)

    def _parents(self, stage: Stage, snapshot: Snapshot) -> list[Artifact]:
        return [] if stage.parent is None else self._artifacts(stage.parent, snapshot)

    def _artifacts(self, stage: Stage, snapshot: Snapshot) -> list[Artifact]:
        return read_chain(self._store, stage, keys=snapshot.stages, slice_digests=snapshot.digests(stage))

    def _examples(self, stage: Stage, digests: Sequence[str]) -> Examples:
        """The prefix's records, slice after slice, from files that are what the ledger says they are."""
        records: list[Encoded] = []
        targets: list[torch.Tensor] = []
        for index, digest in zip(stage.prefix, digests, strict=True):
            encoded, labels = self._slice(Place(stage.shard, index), digest)
            records += encoded
            targets.append(labels)
        return Examples(records=records, targets=torch.cat(targets))

    def _slice(self, place: Place, digest: str) -> tuple[Sequence[Encoded], torch.Tensor]:
        known = self._encoded.get(place)
        if known is None or known[0] != digest:
            content = read_slice(self._slices, place, self._inputs.secret)
            if content.digest != digest:
                raise IntegrityError(
                    f"the file of slice {place.slice} of shard {place.shard} is not the one that the ledger knows; "
                    "restore the run from a backup"
                )
            known = digest, self._encoder.encode(content.rows), self._targets(content.rows)
            with self._remembering:  # the ledger's watcher forgets meanwhile
                self.forget([other for other in self._encoded if other.shard != place.shard])  # one shard in memory
                self._encoded[place] = known
        return known[1], known[2]

    def _targets(self, rows: pa.Table) -> torch.Tensor:
        labels = rows["label"].to_pylist()
        if self._recipe.task.is_regression:
            return torch.tensor(labels, dtype=torch.float32)
        index = {label: number for number, label in enumerate(self._labels)}
        return torch.tensor([index[label] for label in labels], dtype=torch.int64)
