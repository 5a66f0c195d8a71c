"""Gradient checkpointing: the backward pass computes a layer's inside again, from its input (Chen et al. 2016)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint


@contextmanager
def checkpointed(layers: Sequence[nn.Module]) -> Iterator[None]:
    """While within, these layers keep their inputs alone for the backward pass, which may come later.

    The same operations run again on the same inputs, dropout with the same draws, so no bit differs.
    """
    changed: list[Any] = list(layers)
    try:
        for layer in changed:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        yield
    finally:
        for layer in changed:
            del layer.forward  # the class's own is there again
