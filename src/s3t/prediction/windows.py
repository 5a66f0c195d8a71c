"""Inputs as passes take them: encoded a window at a time, so that any number of them takes bounded memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from s3t.models.encode import Encoder, tokens

PASS_TOKENS = 128
"""Fixed cost of a pass on a CPU, in tokens: it costs as much as this many tokens more than it has. For MiniLM on one
core of an AMD EPYC, all values from 64 to 256 are equally fast within a tenth. For larger models the fixed cost is
fewer tokens. On other devices a small pass takes as long as a large one."""


class Windows:
    """Division of inputs into windows and batches: a function of the inputs and declared numbers alone.

    `window_batches` are encoded at a time. Within them, texts are sorted by their length. On a CPU a batch is smaller
    than `batch_size` where its padding would cost more than another pass.
    """

    def __init__(self, encoder: Encoder, *, batch_size: int, window_batches: int) -> None:
        self.batch_size = batch_size
        self._encoder = encoder
        self._size = batch_size * window_batches

    def of(self, inputs: pa.Table, device: torch.device) -> Iterator[Window]:
        """Window after window, each encoded when it is asked for."""
        place = 0
        for start in range(0, inputs.num_rows, self._size):
            rows = inputs.slice(start, self._size)
            counts = self._encoder.answers(rows) or [1] * rows.num_rows
            yield Window(
                self._encoder,
                rows,
                list(itertools.accumulate(counts[:-1], initial=place)),
                batch_size=self.batch_size,
                device=device,
            )
            place += sum(counts)

    def answers(self, inputs: pa.Table) -> int:
        """Places of answers to all inputs: one an input, or one a word."""
        counts = self.counts(inputs)
        return inputs.num_rows if counts is None else sum(counts)

    def counts(self, inputs: pa.Table) -> list[int] | None:
        """Number of answers to each input; None: one each."""
        starts = range(0, max(1, inputs.num_rows), self._size)  # of no inputs, too, an encoder tells which it is
        found = [self._encoder.answers(inputs.slice(start, self._size)) for start in starts]
        if any(counts is None for counts in found):
            return None
        return [count for counts in found for count in counts or ()]


class Window:
    """A window of encoded inputs. Made by `Windows`."""

    def __init__(
        self, encoder: Encoder, inputs: pa.Table, starts: Sequence[int], *, batch_size: int, device: torch.device
    ) -> None:
        self._encoder = encoder
        self._encoded = encoder.encode(inputs)
        self._starts = starts
        self._batch_size = batch_size
        self._device = device

    def batches(self) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """Yields (places of answers among all, collated batch); each input is in one batch."""
        by_length = sorted(range(len(self._encoded)), key=lambda row: tokens(self._encoded[row]))  # stable
        cost = PASS_TOKENS if self._device.type == "cpu" else None
        lengths = [tokens(self._encoded[row]) for row in by_length]
        for part in cheapest_parts(lengths, self._batch_size, pass_tokens=cost):
            rows = by_length[part]
            collated = self._encoder.collate([self._encoded[row] for row in rows])
            batch = {name: tensor.to(self._device) for name, tensor in collated.items()}
            places = [self._starts[row] + place for row in rows for place in self._encoder.places(self._encoded[row])]
            yield places, batch


def cheapest_parts(lengths: Sequence[int], most: int, *, pass_tokens: int | None) -> list[slice]:
    """Consecutive parts of texts that are padded to the longest of their part.

    Args:
        most: most texts of a part.
        pass_tokens: what a part costs beside its padded tokens; None: so much that there are as few parts as possible.

    >>> cheapest_parts([3, 3, 4, 30], 8, pass_tokens=10)
    [slice(0, 3, None), slice(3, 4, None)]
    """
    count = len(lengths)
    if pass_tokens is None:
        return [slice(start, min(start + most, count)) for start in range(0, count, most)]
    cheapest = np.zeros(count + 1, dtype=np.int64)  # cost of the first texts, for each number of them
    start_of_last = [0] * (count + 1)
    for end in range(1, count + 1):
        starts = np.arange(end - 1, max(0, end - most) - 1, -1)  # argmin takes the latest of equals: full from the left
        costs = cheapest[starts] + (end - starts) * lengths[end - 1] + pass_tokens
        best = int(costs.argmin())
        cheapest[end], start_of_last[end] = costs[best], int(starts[best])
    parts: list[slice] = []
    while count:
        parts.append(slice(start_of_last[count], count))
        count = start_of_last[count]
    return parts[::-1]
