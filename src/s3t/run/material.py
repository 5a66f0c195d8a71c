"""Training data of stages: slices, read, checked and encoded, with their trunk states. Imports torch.

It stays in memory for all stages of a shard, until a slice loses a record.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import torch

from s3t.core import Place, Secret, Stage
from s3t.events import Progress
from s3t.ledger import Snapshot
from s3t.models.blocks import Model
from s3t.models.encoders import Encoded, Encoder, augmented, tokens
from s3t.recipe import Recipe
from s3t.store.slices import Slices
from s3t.training.examples import EncodedSlice, Examples, SliceStates, TrunkCache, fill_cache
from s3t.training.numerics import exact_numerics


def replayed(records: Sequence[str], share: float, *, secret: Secret) -> list[int]:
    """The positions of a slice's record ids whose keyed hash, read as a fraction of 1, lies below the share.

    The choice depends on each record's own id, so a deletion does not change the others'. It depends on one hash, so a
    larger share contains a smaller one.
    """
    if share == 1:  # all; the secret of a run whose key was destroyed need not be asked
        return list(range(len(records)))
    bound = share * 2**64
    return [
        position
        for position, record in enumerate(records)
        if int.from_bytes(secret.token("replay", "record", record)[:8], "big") < bound
    ]


EMPTY = SliceStates(digest="", packed=torch.empty(0, 0), starts=(), lengths=())


@dataclass(eq=False, kw_only=True)
class Material:
    """Training data of one run."""

    slices: Slices
    tmp: Path
    """Folder of the trunk states that exceed their memory, in files without a name."""
    recipe: Recipe
    labels: Sequence[str]
    """In the head's order."""
    secret: Secret
    model: Model
    """The bare base model."""
    encoder: Encoder

    def __post_init__(self) -> None:
        self._remembering = threading.RLock()
        self._encoded: dict[Place, EncodedSlice] = {}
        training = self.recipe.training
        self._trunk = TrunkCache(memory=training.cache_memory, disk=training.cache_disk, folder=self.tmp)

    @property
    def held(self) -> frozenset[Place]:
        """Slices of which something is in memory."""
        with self._remembering:
            return frozenset(self._encoded) | self._trunk.places

    def forget(self, places: Collection[Place]) -> None:
        with self._remembering:
            for place in places:
                self._encoded.pop(place, None)
            self._trunk.forget(places)

    def forget_stale(self, snapshot: Snapshot) -> None:
        """Drop slices that have lost a record, or are losing one, whichever process deleted it."""
        with self._remembering:
            states = {place: snapshot.slices.get(place) for place in self.held}  # another thread may know one more
            digests = {place: state.digest for place, state in states.items() if state and not state.pending}
            self.forget([place for place, encoded in self._encoded.items() if encoded.digest != digests.get(place)])
            self._trunk.keep(digests)

    def examples(self, stage: Stage, digests: Sequence[str], *, progress: Progress) -> Examples:
        """The records of a stage's prefix, from files that are what the ledger says they are.

        `digests` are those of the prefix's slices, in its order. `progress` hears of every batch of states.
        """
        parts = [self.slice(place, digest) for place, digest in zip(stage.places, digests, strict=True)]
        # Of the slices before the stage's own, the records that are replayed.
        own = stage.prefix[-1]
        selected = [range(len(part.records)) if part.place.slice == own else part.replayed for part in parts]
        if not self.recipe.training.trunk_cache:
            augment = self._augment if self.recipe.image.is_augmented else None
            return Examples(slices=parts, encoder=self.encoder, selected=selected, augment=augment)
        block = self.recipe.trained_block(stage.depth)
        border = self.model.border(block)
        needed = {(part.place, border) for part in parts}
        states = [self._states(part, block, needed, progress) for part in parts]
        return Examples(slices=parts, encoder=self.encoder, selected=selected, border=border, states=states)

    def _states(
        self, part: EncodedSlice, block: int, needed: Collection[tuple[Place, int]], progress: Progress
    ) -> SliceStates:
        border = self.model.border(block)
        cached = self._trunk.find(part.place, border, part.digest)
        if cached is not None or not part.records:
            return cached or EMPTY
        # In the same go at the borders of the deeper blocks, which other stages will start at.
        deeper = (self.model.border(other) for other in range(block + 1, self.recipe.blocks + 1))
        wanted = [border, *(lower for lower in deeper if self._trunk.find(part.place, lower, part.digest) is None)]
        with exact_numerics(self.model.base.device, self.recipe.training):
            return fill_cache(
                self._trunk,
                self.model.passes,
                part,
                self.encoder,
                borders=wanted,
                batch_size=self.recipe.training.batch_size,
                needed=needed,
                progress=progress,
            )[border]

    def slice(self, place: Place, digest: str, new_labels: Sequence[str] = ()) -> EncodedSlice:
        """A slice's records, from a file that is what the ledger says it is. `new_labels` are behind those of init."""
        with self._remembering:
            known = self._encoded.get(place)
        if known is None or known.digest != digest:
            known = self._encode(place, digest, self.slices.read(place, digest), [*self.labels, *new_labels])
            with self._remembering:  # the ledger's watcher forgets meanwhile
                others = [other for other in self._encoded if other.shard != place.shard]  # one shard in memory
                for other in others:
                    del self._encoded[other]
                self._encoded[place] = known
        return known

    def _augment(self, record: Encoded, seed: int, token: bytes) -> Encoded:
        image = self.recipe.image
        pixels = augmented(record["pixel_values"], crop=image.crop, flip=image.flip, seed=seed, record=token)
        return {"pixel_values": pixels}

    def _encode(self, place: Place, digest: str, rows: pa.Table, labels: Sequence[str]) -> EncodedSlice:
        encode = self.encoder.encode_later if self.recipe.training.trunk_cache else self.encoder.encode
        records, ids = encode(rows), rows["record"].to_pylist()
        lengths = [tokens(record) for record in records] if self.recipe.task.inputs.has_tokens else None
        return EncodedSlice(
            place=place,
            digest=digest,
            records=records,
            targets=self.recipe.task.target.targets(rows, records, labels),
            lengths=lengths,
            replayed=replayed(ids, self.recipe.method.replay, secret=self.secret),
            tokens=[self.secret.token("augment", "record", record) for record in ids if self.recipe.image.is_augmented],
        )
