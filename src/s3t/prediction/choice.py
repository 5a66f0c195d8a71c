"""Choice of the computation of members' logits, by the parameters that stages train."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from s3t.methods import Trainable
from s3t.models.tensors import StageTensors
from s3t.prediction.ensemble import Ensemble
from s3t.prediction.resident import Link
from s3t.prediction.whole import WholeEnsemble
from s3t.progress import SILENT, Steps
from s3t.tasks.aggregate import Scores


class AnyEnsemble(Protocol):
    """Passes of members through one base model."""

    def prepared(self, block: int, tensors: StageTensors) -> Link:
        """The link of a stage that trained a block."""

    def logits(self, members: Sequence[Any], inputs: pa.Table, *, steps: Steps = SILENT) -> Scores:
        """Logits of every member, a chain of links each, on every input, M x N x C."""


ENSEMBLES: Mapping[Trainable, Callable[..., AnyEnsemble]] = {"adapter": Ensemble, "all": WholeEnsemble}
"""Constructors by the parameters that stages train. Each takes the model, windows, and the recipe's `training`."""
