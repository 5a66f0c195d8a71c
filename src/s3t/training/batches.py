"""The order of records in an epoch: a function of their number and a seed."""

from __future__ import annotations

import torch


def epoch_batches(count: int, *, batch_size: int, seed: int) -> list[list[int]]:
    """Positions 0..count-1 in a seeded random order, cut into batches; the last may be short.

    Raises:
        ValueError: `batch_size` is below 1.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; it must be at least 1")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()
    return [order[start : start + batch_size] for start in range(0, count, batch_size)]
