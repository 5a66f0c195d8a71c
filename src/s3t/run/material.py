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
from s3t.core.stages import segments_to
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


def _joined(digests: Sequence[str]) -> str:
    """The digest of a slice's segments together."""
    return " ".join(digests)


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
        """Drop slices with a segment among these."""
        given = set(places)
        with self._remembering:
            hit = [held for held in self.held if not given.isdisjoint(segments_to(held))]
            for place in hit:
                self._encoded.pop(place, None)
            self._trunk.forget(hit)

    def forget_stale(self, snapshot: Snapshot) -> None:
        """Drop slices that have lost a record, or are losing one, whichever process deleted it."""
        with self._remembering:
            digests = {}
            for place in self.held:
                states = [snapshot.slices.get(each) for each in segments_to(place)]  # another thread may know one more
                if all(state and not state.pending for state in states):
                    digests[place] = _joined([state.digest for state in states if state])
            self.forget([place for place, encoded in self._encoded.items() if encoded.digest != digests.get(place)])
            self._trunk.keep(digests)

    def examples(self, stage: Stage, digests: Sequence[str], *, progress: Progress) -> Examples:
        """The records of a stage's prefix, from files that are what the ledger says they are.

        `digests` are those of its places. `progress` hears of every batch of states.
        """
        parts = self.parts(stage, digests)
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

    def parts(self, stage: Stage, digests: Sequence[str], new_labels: Sequence[str] = ()) -> list[EncodedSlice]:
        """The slices that a stage goes through, each with all segments that the stage sees, from files that are what
        the ledger says they are. `new_labels` are behind those of init."""
        given = iter(digests)
        return [self._slice(list(zip(segments, given, strict=False)), new_labels) for segments in stage.own]

    def _slice(self, versions: Sequence[tuple[Place, str]], new_labels: Sequence[str]) -> EncodedSlice:
        (place, _), digest = versions[-1], _joined([digest for _, digest in versions])
        with self._remembering:
            known = self._encoded.get(place)
        if known is None or known.digest != digest:
            tables = [self.slices.read(*version) for version in versions]
            rows = pa.concat_tables(tables, promote_options="permissive")
            known = self._encode(place, digest, rows, [*self.labels, *new_labels])
            with self._remembering:  # the ledger's watcher forgets meanwhile
                for other in tuple(self._encoded):
                    if other.shard != place.shard or other.slice == place.slice:  # one shard in memory
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
