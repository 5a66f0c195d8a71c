"""The batches of an epoch: a function of the number of records, of their lengths, and of a seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

POOL_BATCHES = 64
"""Records of so many batches are sorted by length together; more would make an epoch less random, not much faster."""


def epoch_batches(count: int, *, batch_size: int, seed: int, lengths: Sequence[int] | None = None) -> list[list[int]]:
    """Positions 0..count-1 in a seeded random order, cut into batches; one may be short.

    Args:
        count: records.
        batch_size: records a batch.
        seed: of the order.
        lengths: of the records; those of like length then share a batch, so it is hardly padded. Which of them do, and
            the order of batches, stay random.

    Raises:
        ValueError: `batch_size` is below 1.

    >>> lengths = [5, 9, 5, 9, 9, 5]
    >>> [{lengths[number] for number in batch} for batch in epoch_batches(6, batch_size=3, seed=0, lengths=lengths)]
    [{9}, {5}]
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    if lengths is None:
        return cut(order, batch_size)
    batches: list[list[int]] = []
    for pool in cut(order, POOL_BATCHES * batch_size):
        batches += cut(sorted(pool, key=lengths.__getitem__), batch_size)
    return [batches[number] for number in torch.randperm(len(batches), generator=generator).tolist()]


def cut(order: list[int], size: int) -> list[list[int]]:
    """Consecutive parts of a size; the last may be short."""
    return [order[start : start + size] for start in range(0, len(order), size)]
