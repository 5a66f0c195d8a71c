"""Training examples of a stage: the encoded records of its prefix, and perhaps the trunk's states of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from s3t.models.encoders import Encoded, Encoder
from s3t.models.passes import Batch, padded_states
from s3t.partition import Place


def epoch_batches(count: int, *, batch_size: int, seed: int) -> list[list[int]]:
    """Positions 0..count-1 in a seeded random order, cut into batches; one may be short."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
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
    digest: str
    """Keyed digest of the slice's version."""
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

    def of(self, numbers: Sequence[int]) -> list[Encoded]:
        """Records by number."""
        return [self.records[number] for number in numbers]


@dataclass(frozen=True, kw_only=True)
class SliceStates:
    """The hidden states of a slice at one border."""

    packed: Tensor
    """Tokens x width, record after record in the order in which they were computed, without padding."""
    starts: Sequence[int]
    """First row of each record, in the slice's order."""
    lengths: Sequence[int]
    """Tokens of each record."""

    def of(self, record: int) -> Tensor:
        """One record's states, tokens x width."""
        start = self.starts[record]
        return self.packed[start : start + self.lengths[record]]


class Examples:
    """The records of a prefix, slice after slice.

    Args:
        states: of each slice, the states at the border; without them a pass starts at the inputs.
        selected: of each slice, the records that are trained on; None: all.
        augment: changes a record by the epoch's seed and the record's own token.
    """

    def __init__(
        self,
        slices: Sequence[EncodedSlice],
        encoder: Encoder,
        *,
        border: int = 0,
        states: Sequence[SliceStates] | None = None,
        selected: Sequence[Sequence[int]] | None = None,
        augment: Augment | None = None,
    ) -> None:
        self.border = border
        self._slices = slices
        self._encoder = encoder
        self._states = states
        self._augment = augment
        if selected is None:
            selected = [range(len(part.records)) for part in slices]
        self._at = [(index, record) for index, records in enumerate(selected) for record in records]

    def __len__(self) -> int:
        return len(self._at)

    def batch(self, numbers: Sequence[int], *, seed: int = 0) -> tuple[Batch, Tensor | None]:
        """Collated batch of some records; also their states, padded alike, if passes start at a border."""
        at = [self._at[number] for number in numbers]
        if self._states is None:
            return self._collated(at, seed), None
        batch = self._encoder.dummy(self._first, len(at)) or self._collated(at, seed)
        return batch, padded_states(batch, [self._states[index].of(record) for index, record in at])

    def targets(self, numbers: Sequence[int]) -> Tensor:
        """Targets of some records, one row for each of their answers."""
        return torch.cat([self._slices[index].targets[record] for index, record in map(self._at.__getitem__, numbers)])

    def count_answers(self, numbers: Sequence[int]) -> int:
        return sum(len(self._slices[index].targets[record]) for index, record in map(self._at.__getitem__, numbers))

    def _collated(self, at: Sequence[tuple[int, int]], seed: int) -> Batch:
        parts, augment = self._slices, self._augment
        if augment is None:
            return self._encoder.collate([parts[index].records[record] for index, record in at])
        changed = [augment(parts[index].records[record], seed, parts[index].tokens[record]) for index, record in at]
        return self._encoder.collate(changed)

    @cached_property
    def _first(self) -> Encoded:
        index, record = self._at[0]
        return self._slices[index].records[record]
