"""The batches of an epoch: a function of the number of records, of their lengths, and of a seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch

POOL_BATCHES, POOLS = 50, 4
"""Records of so many batches at most are sorted by length together, and an epoch has at least so many pools, or every
epoch would have the same batches. The numbers are those of transformers' LengthGroupedSampler."""


def epoch_batches(count: int, *, batch_size: int, seed: int, lengths: Sequence[int] | None = None) -> list[list[int]]:
    """Positions 0..count-1 in a seeded random order, cut into batches; one may be short.

    Args:
        seed: of the order.
        lengths: of the records; those of similar length then share a batch, which needs little padding. Which of them
            share one, and the order of batches, stay random.

    >>> lengths = [5, 9] * 8
    >>> [[lengths[number] for number in batch] for batch in epoch_batches(16, batch_size=2, seed=0, lengths=lengths)]
    [[5, 5], [5, 9], [5, 9], [9, 9], [5, 9], [9, 9], [5, 5], [5, 9]]
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    generator = torch.Generator().manual_seed(seed)
    order: list[int] = torch.randperm(count, generator=generator).tolist()
    if lengths is None:
        return cut(order, batch_size)
    batches: list[list[int]] = []
    pool_batches = max(1, min(POOL_BATCHES, count // (POOLS * batch_size)))
    for pool in cut(order, pool_batches * batch_size):
        batches += cut(sorted(pool, key=lengths.__getitem__), batch_size)
    return [batches[number] for number in torch.randperm(len(batches), generator=generator).tolist()]


def cut(order: list[int], size: int) -> list[list[int]]:
    """Consecutive parts of a size; the last may be short."""
    return [order[start : start + size] for start in range(0, len(order), size)]
