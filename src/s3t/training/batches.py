"""The batches of an epoch, and the parts in which one is computed: functions of the records' number, of their lengths,
and of a seed."""

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


def parts_of(batch: Sequence[int], lengths: Sequence[int], *, part_tokens: float) -> list[list[int]]:
    """A batch in parts of like length, so that a part is hardly padded: the split that costs the least.

    A part costs as many tokens as its records have when all are as long as its longest, and `part_tokens` more.

    Args:
        batch: positions of records.
        lengths: of all records, by position.
        part_tokens: what a pass costs beside its tokens, in tokens.

    >>> parts_of([0, 1, 2, 3], [90, 10, 95, 12], part_tokens=50)
    [[1, 3], [0, 2]]
    """
    order = sorted(batch, key=lengths.__getitem__)  # stable
    costs, starts = [0.0], [0]
    for end in range(1, len(order) + 1):
        longest = lengths[order[end - 1]]
        cost, start = min((costs[start] + part_tokens + (end - start) * longest, start) for start in range(end))
        costs.append(cost)
        starts.append(start)
    parts, end = [], len(order)
    while end:
        parts.append(order[starts[end] : end])
        end = starts[end]
    return parts[::-1]


def cut(order: list[int], size: int) -> list[list[int]]:
    """Consecutive parts of a size; the last may be short."""
    return [order[start : start + size] for start in range(0, len(order), size)]
