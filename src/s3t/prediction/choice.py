"""Choice of the computation of members' logits, by the parameters that stages train."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch

from s3t.errors import InputError
from s3t.methods import Trainable
from s3t.models.model import Model
from s3t.models.tensors import StageTensors
from s3t.prediction.ensemble import Ensemble, Merging
from s3t.prediction.resident import Link
from s3t.prediction.windows import Windows
from s3t.progress import SILENT, Steps
from s3t.recipe import Recipe, Training
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


class AnyEnsemble(Protocol):
    """Passes of members through one base model."""

    def prepared(self, block: int, tensors: StageTensors) -> Link:
        """The link of a stage that trained a block."""

    def logits(self, members: Sequence[Any], inputs: pa.Table, *, steps: Steps = SILENT) -> Scores:
        """Logits of every member, a chain of links each, on every input, M x N x C."""

    def side_by_side(self, members: Sequence[Any]) -> AbstractContextManager[list[int]]:
        """While within, a pass of the whole model has rows of every member. See `Ensemble.side_by_side`."""


def _with_adapters(model: Any, windows: Windows, recipe: Recipe, *, merged: bool) -> Ensemble:
    settings = recipe.prediction
    merging = Merging(
        members=recipe.partition.shards,
        blocks=recipe.blocks,
        memory=settings.merged_memory,
        kept=settings.adapter_memory,
    )
    few = merged and settings.ensemble == "shards"
    return Ensemble(model, windows, training=recipe.training, merging=merging if few else None)


def _with_whole_models(model: Any, windows: Windows, recipe: Recipe, *, merged: bool) -> WholeEnsemble:
    return WholeEnsemble(model, windows, training=recipe.training)


ENSEMBLES: Mapping[Trainable, Callable[..., AnyEnsemble]] = {"adapter": _with_adapters, "all": _with_whole_models}
"""Makers by the parameters that stages train. Each takes the model, windows and the recipe; `merged` allows merged
weights."""
