"""The logits of members that have nothing in common but their architecture: one pass after another.

Shapes: M members, N inputs, C labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from s3t.models.blocks import BlockModel
from s3t.models.encode import Encoder, tokens
from s3t.models.tensors import StageTensors
from s3t.prediction.aggregate import Scores
from s3t.recipe import Training
from s3t.training.numerics import exact_numerics


@dataclass(frozen=True, kw_only=True)
class WholeLink:
    """A member: all parameters of a model."""

    tensors: StageTensors

    @property
    def nbytes(self) -> int:
        """Memory, in bytes."""
        return sum(tensor.nbytes for part in (self.tensors.block, self.tensors.head) for tensor in part.values())


class WholeEnsemble:
    """Passes of whole models, one at a time in the place of the base model.

    Args:
        model: the base model.
        encoder: of the inputs.
        training: precision and threads (resolved), the same as in training.
        batch_size: inputs of a pass.
        window_batches: batches that are encoded at a time, and passed before another member takes its turn. Within
            them, texts are sorted by their length.
    """

    def __init__(
        self, model: BlockModel, encoder: Encoder, *, training: Training, batch_size: int, window_batches: int
    ) -> None:
        self._model = model
        self._encoder = encoder
        self._training = training
        self._batch_size = batch_size
        self._window = batch_size * window_batches

    def logits(
        self,
        members: Sequence[Sequence[WholeLink]],
        inputs: pa.Table,
        *,
        on_batch: Callable[[int], None] = lambda count: None,
    ) -> Scores:
        """Logits of every member on every input, M x N x C.

        Args:
            members: each a chain of one link.
            inputs: the feature columns, N rows.
            on_batch: told after each pass how many answers it gave.
        """
        found: Scores = np.zeros((len(members), inputs.num_rows, 1))
        device = self._model.passes.device
        with exact_numerics(device, self._training), torch.inference_mode():
            for start in range(0, inputs.num_rows, self._window):
                encoded = self._encoder.encode(inputs.slice(start, self._window))
                by_length = sorted(range(len(encoded)), key=lambda row: tokens(encoded[row]))  # stable
                for number, (link,) in enumerate(members):
                    with self._model.mounted({1: link.tensors}):
                        for first in range(0, len(encoded), self._batch_size):
                            rows = by_length[first : first + self._batch_size]
                            collated = self._encoder.collate([encoded[row] for row in rows])
                            batch = {name: tensor.to(device) for name, tensor in collated.items()}
                            answers = self._model.passes.logits(batch).float().cpu().numpy()
                            if found.shape[-1] != answers.shape[-1]:
                                found = np.zeros((*found.shape[:2], answers.shape[-1]))
                            found[number, [start + row for row in rows]] = answers
                            on_batch(len(rows))
        return found
