"""Inputs as passes take them: encoded a window at a time, so that any number of them takes bounded memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import torch
from torch import Tensor

from s3t.models.encode import Encoder, tokens


class Windows:
    """How inputs are cut: a function of the inputs and of declared numbers.

    Args:
        encoder: of the inputs.
        batch_size: inputs of a batch.
        window_batches: batches that are encoded at a time. Within them, texts are sorted by their length.
    """

    def __init__(self, encoder: Encoder, *, batch_size: int, window_batches: int) -> None:
        self.batch_size = batch_size
        self._encoder = encoder
        self._size = batch_size * window_batches

    def of(self, inputs: pa.Table, device: torch.device) -> Iterator[Window]:
        """Window after window, each encoded when it is asked for.

        Args:
            inputs: the feature columns, a row an input.
            device: where batches are put.
        """
        for start in range(0, inputs.num_rows, self._size):
            yield Window(
                self._encoder, inputs.slice(start, self._size), start, batch_size=self.batch_size, device=device
            )


class Window:
    """Some encoded inputs. Made by `Windows`."""

    def __init__(
        self, encoder: Encoder, inputs: pa.Table, start: int, *, batch_size: int, device: torch.device
    ) -> None:
        self._encoder = encoder
        self._encoded = encoder.encode(inputs)
        self._start = start
        self._batch_size = batch_size
        self._device = device

    def batches(self) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
        """The numbers of some inputs among all, and they collated; each input once."""
        by_length = sorted(range(len(self._encoded)), key=lambda row: tokens(self._encoded[row]))  # stable
        for first in range(0, len(by_length), self._batch_size):
            rows = by_length[first : first + self._batch_size]
            collated = self._encoder.collate([self._encoded[row] for row in rows])
            batch = {name: tensor.to(self._device) for name, tensor in collated.items()}
            yield [self._start + row for row in rows], batch
