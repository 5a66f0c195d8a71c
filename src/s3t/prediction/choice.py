"""Choice of the computation of members' logits, by the parameters that stages train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pyarrow as pa

from s3t.methods import Trainable
from s3t.models.tensors import StageTensors
from s3t.prediction.ensemble import Ensemble, Merging
from s3t.prediction.resident import Link
from s3t.prediction.whole import WholeEnsemble
from s3t.prediction.windows import Windows
from s3t.progress import SILENT, Steps
from s3t.recipe import Recipe
from s3t.tasks.aggregate import Scores


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
