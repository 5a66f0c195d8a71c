"""The logits of members that have nothing in common but their architecture: one pass after another.

Shapes: M members, N inputs, C labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch

from s3t.errors import InputError
from s3t.models.model import Model
from s3t.models.tensors import StageTensors
from s3t.prediction.windows import Windows
from s3t.progress import SILENT, Steps
from s3t.recipe import Training
from s3t.tasks.aggregate import Scores
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
        windows: cuts the inputs into batches; all of a window are passed before another member takes its turn.
    """

    def __init__(self, model: Model, windows: Windows, *, training: Training) -> None:
        self._model = model
        self._windows = windows
        self._training = training

    def prepared(self, _block: int, tensors: StageTensors) -> WholeLink:
        return WholeLink(tensors=tensors)

    @contextmanager
    def side_by_side(self, members: Sequence[Sequence[WholeLink]]) -> Iterator[list[int]]:
        """`Ensemble.side_by_side` for one member: others have nothing in common with it."""
        if len(members) > 1:
            problem = "members that are whole models write alone; pass `prefixes` with one of a shard"
            raise InputError("generate", problem)
        ((link,),) = members
        device = self._model.passes.device
        with exact_numerics(device, self._training), self._model.mounted({1: link.tensors}), torch.inference_mode():
            yield [0]

    def logits(self, members: Sequence[Sequence[WholeLink]], inputs: pa.Table, *, steps: Steps = SILENT) -> Scores:
        """Logits of every member on every input, M x N x C."""
        logits: Scores = np.full((len(members), self._windows.answers(inputs), self._model.base.answers), np.nan)
        device = self._model.passes.device
        with exact_numerics(device, self._training), torch.inference_mode():
            for window in self._windows.of(inputs, device):
                for number, (link,) in enumerate(members):
                    with self._model.mounted({1: link.tensors}):
                        for rows, batch in window.batches():
                            logits[number, rows] = self._model.passes.answers(batch).float().cpu().numpy()
                            steps.advance(len(next(iter(batch.values()))))
        return logits
