"""Training examples of a stage: the encoded records of its prefix, and perhaps the trunk's states of them."""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from s3t.core import Place
from s3t.errors import StorageError
from s3t.events import Progress, WorkStep
from s3t.models.encoders import Encoded, Encoder
from s3t.models.passes import Batch, Passes, Start, pack_states, padded_states
from s3t.store.disk import storage_errors


def epoch_batches(count: int, *, batch_size: int, seed: int) -> list[list[int]]:
    """Positions 0..count-1 in a seeded random order, cut into batches; one may be short."""
    return cut(torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist(), batch_size)


def cut(order: list[int], size: int) -> list[list[int]]:
    """Consecutive parts of a size; the last may be short."""
    return [order[start : start + size] for start in range(0, len(order), size)]


Augment = Callable[[Encoded, int, bytes], Encoded]

Name = tuple[Place, int]
"""A slice, and the border of a block."""


@dataclass(frozen=True, kw_only=True)
class EncodedSlice:
    """A slice, encoded for the model."""

    place: Place
    """Its newest segment."""
    digest: str
    """Keyed digests of its segments' versions."""
    records: Sequence[Encoded]
    """Each encoded by itself; perhaps as it is asked for."""
    targets: Sequence[Tensor] | Tensor
    """Targets of each record, by its number: one row for each of its answers."""
    lengths: Sequence[int] | None
    """Tokens of each record; None where all records are of one size."""
    replayed: Sequence[int]
    """The records that later stages see again."""
    tokens: Sequence[bytes]
    """Keyed hash of each record, the seed of its augmentation; empty where records are not augmented."""


@dataclass(frozen=True, kw_only=True)
class SliceStates:
    """The hidden states of a slice at one border."""

    digest: str
    """Digests of its segments' versions."""
    packed: Tensor
    """Tokens x width, record after record in the order in which they were computed, without padding."""
    starts: Sequence[int]
    """First row of each record, in the slice's order."""
    lengths: Sequence[int]
    """Tokens of each record."""
    on_disk: bool = False
    """They lie in a file, which is mapped into memory."""

    def of(self, record: int) -> Tensor:
        """One record's states, tokens x width."""
        start = self.starts[record]
        return self.packed[start : start + self.lengths[record]]


@dataclass(eq=False, kw_only=True)
class Examples:
    """The records of a prefix, slice after slice; without states at the border, a pass starts at the inputs."""

    slices: Sequence[EncodedSlice]
    encoder: Encoder
    selected: Sequence[Sequence[int]]
    """Records of each slice that are trained on."""
    border: int = 0
    states: Sequence[SliceStates] | None = None
    augment: Augment | None = None
    """Changes a record by the epoch's seed and the record's own token."""

    def __post_init__(self) -> None:
        self._at = [(index, record) for index, records in enumerate(self.selected) for record in records]

    def __len__(self) -> int:
        return len(self._at)

    def batch(self, numbers: Sequence[int], *, seed: int = 0) -> tuple[Batch, Start | None]:
        """Collated batch of some records; also their states, padded alike, if passes start at a border."""
        at = [self._at[number] for number in numbers]
        if self.states is None:
            return self._collated(at, seed), None
        batch = self.encoder.dummy(self._first, len(at)) or self._collated(at, seed)
        states = [self.states[index].of(record) for index, record in at]
        return batch, Start(self.border, padded_states(batch, states))

    def targets(self, numbers: Sequence[int]) -> Tensor:
        """Targets of some records, one row for each of their answers."""
        return torch.cat([self.slices[index].targets[record] for index, record in map(self._at.__getitem__, numbers)])

    def count_answers(self, numbers: Sequence[int]) -> int:
        return sum(len(self.slices[index].targets[record]) for index, record in map(self._at.__getitem__, numbers))

    def _collated(self, at: Sequence[tuple[int, int]], seed: int) -> Batch:
        parts, augment = self.slices, self.augment
        if augment is None:
            return self.encoder.collate([parts[index].records[record] for index, record in at])
        changed = [augment(parts[index].records[record], seed, parts[index].tokens[record]) for index, record in at]
        return self.encoder.collate(changed)

    @cached_property
    def _first(self) -> Encoded:
        index, record = self._at[0]
        return self.slices[index].records[record]


class TrunkCache:
    """The trunk's states of slices, each computed in batches of one slice alone: whatever has room, they are its own.

    They end with the slice or the process. What exceeds the memory and was used least recently moves to the disk, in
    files without a name, which the system takes back by itself, or goes. Safe to share among threads.
    """

    def __init__(self, *, memory: int, disk: int, folder: Path) -> None:
        self._budgets = {False: memory, True: disk}
        self._folder = folder
        self._changing = threading.RLock()
        self._held: dict[Name, SliceStates] = {}  # least recently used first

    def find(self, place: Place, border: int, digest: str) -> SliceStates | None:
        """Cached states of a slice with a digest; None if there are none."""
        with self._changing:
            states = self._held.get((place, border))
            if states is None or states.digest != digest:
                return None
            self._held[place, border] = self._held.pop((place, border))
            return states

    def room(
        self, tokens: int, like: Tensor, *, needed: Collection[Name], evict: bool = True
    ) -> tuple[Tensor, bool] | None:
        """Room for states that are about to be computed, and whether it is on the disk. What is needed may not go,
        because the stage that is trained takes all of it at once. Without `evict`, free space alone; None if there is
        none.
        """
        size = _size(tokens, like)
        with self._changing:
            for on_disk in (False, True):
                if self._make_room(size, on_disk=on_disk, needed=needed if evict else self._held):
                    return self._made(tokens, like, on_disk=on_disk), on_disk
            needed_bytes = sum(entry.packed.nbytes for name, entry in self._held.items() if name in needed)
        if not evict:
            return None
        raise StorageError(
            f"the trunk cache has no room: this stage needs at least {_gib(needed_bytes + size)} at once, but "
            f"training.cache_memory is {_gib(self._budgets[False])} and training.cache_disk "
            f"{_gib(self._budgets[True])}. Raise one of them in the run's recipe.yaml (they change no bits), or make a "
            "run with trunk_cache: false"
        )

    def put(self, name: Name, states: SliceStates) -> None:
        """Hold states in the room that was made for them."""
        with self._changing:
            self._held[name] = states

    def forget(self, places: Collection[Place]) -> None:
        with self._changing:
            self._held = {name: entry for name, entry in self._held.items() if name[0] not in places}

    def keep(self, digests: Mapping[Place, str]) -> None:
        """Let go of all but slices with these digests."""
        with self._changing:
            self._held = {name: entry for name, entry in self._held.items() if digests.get(name[0]) == entry.digest}

    @property
    def places(self) -> frozenset[Place]:
        """Slices of which something is held."""
        with self._changing:
            return frozenset(place for place, _ in self._held)

    def used(self, *, on_disk: bool) -> int:
        """Bytes in memory, or on the disk."""
        with self._changing:
            return sum(entry.packed.nbytes for entry in self._held.values() if entry.on_disk is on_disk)

    def _make_room(self, size: int, *, on_disk: bool, needed: Collection[Name]) -> bool:
        """Move or evict what is not needed; True if there is room then."""
        budget = self._budgets[on_disk]
        others = [name for name, entry in self._held.items() if entry.on_disk is on_disk and name not in needed]
        movable = sum(self._held[name].packed.nbytes for name in others)
        if size > budget - self.used(on_disk=on_disk) + movable:
            return False
        for name in others:
            if self.used(on_disk=on_disk) + size <= budget:
                break
            entry = self._held.pop(name)
            if not on_disk and self._make_room(entry.packed.nbytes, on_disk=True, needed=needed):
                mapped = self._made(len(entry.packed), entry.packed, on_disk=True)
                self._held[name] = replace(entry, packed=mapped.copy_(entry.packed), on_disk=True)
        return True

    def _made(self, tokens: int, like: Tensor, *, on_disk: bool) -> Tensor:
        shape, size = (tokens, like.shape[-1]), _size(tokens, like)
        if not on_disk or size == 0:
            return torch.empty(shape, dtype=like.dtype)
        with storage_errors("making room for the trunk cache"):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._folder) as file:
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk is noticed here; later it would kill us
                mapped = mmap.mmap(file.fileno(), size)
        return torch.frombuffer(mapped, dtype=like.dtype).reshape(shape)


def fill_cache(
    cache: TrunkCache,
    passes: Passes,
    contents: EncodedSlice,
    encoder: Encoder,
    *,
    borders: Collection[int],
    batch_size: int,
    needed: Collection[Name],
    progress: Progress,
) -> dict[int, SliceStates]:
    """Compute a slice's states at some borders in one go through its records, and hold them.

    Borders that no stage needs now are left out where there is no free room; the others' states are returned. Passes go
    through the bare base model, within `exact_numerics`. `progress` hears of each pass, with 0 records of a stage.
    """
    rooms: dict[int, tuple[Tensor, bool]] | None = None
    starts, lengths, row = [0] * len(contents.records), [0] * len(contents.records), 0
    for numbers, batch in encoder.batches(contents.records, contents.lengths, batch_size, passes.base.device):
        with torch.no_grad():
            by_border = passes.states(batch, borders)
        packed = {}
        for border, padded in by_border.items():
            packed[border], tokens = pack_states(batch, padded)
        if rooms is None:
            total = sum(contents.lengths) if contents.lengths else tokens[0] * len(contents.records)
            rooms = {}
            for border in sorted(packed, key=lambda border: (contents.place, border) not in needed):
                evict = (contents.place, border) in needed
                found = cache.room(total, packed[border], needed=needed, evict=evict)
                if found is not None:
                    rooms[border] = found
        for border, (room, _) in rooms.items():
            room[row : row + len(packed[border])] = packed[border]
        for record, count in zip(numbers, tokens, strict=True):
            starts[record], lengths[record] = row, count
            row += count
        progress(WorkStep(count=0))
    states = {}
    for border, (room, on_disk) in (rooms or {}).items():
        states[border] = SliceStates(
            digest=contents.digest, packed=room, starts=starts, lengths=lengths, on_disk=on_disk
        )
        cache.put((contents.place, border), states[border])
    return states


def _size(tokens: int, like: Tensor) -> int:
    return tokens * like.shape[-1] * like.element_size()


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
