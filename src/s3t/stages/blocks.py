"""The transformer layers of a block."""

from __future__ import annotations


def block_layers(block: int, *, layers: int, layers_per_slice: int) -> tuple[int, ...]:
    """The layer indices of a block, from the top of the model down (paper, Section 3.2).

    Args:
        block: 1 for the top block.

    Raises:
        ValueError: the model has not enough layers.

    >>> block_layers(1, layers=12, layers_per_slice=2), block_layers(6, layers=12, layers_per_slice=2)
    ((10, 11), (0, 1))
    """
    first = layers - block * layers_per_slice
    if block < 1 or first < 0:
        raise ValueError(f"block {block} of {layers_per_slice} layers does not fit a model of {layers} layers")
    return tuple(range(first, first + layers_per_slice))
