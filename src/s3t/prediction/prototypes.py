"""Answers of prototypes: how near an input's feature is to each class's mean (Snell et al. 2017).

Shapes: N inputs, C labels, D features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch

from s3t.models.features import features
from s3t.models.model import Model
from s3t.models.tensors import StageTensors
from s3t.prediction.windows import Windows
from s3t.progress import SILENT, Steps
from s3t.recipe import Training
from s3t.tasks.aggregate import Scores
from s3t.training.numerics import exact_numerics
from s3t.training.prototypes import COUNTS, SUMS

TEMPERATURE = 0.05
"""Divisor of cosines, which scales them like trained logits. Declared, not fitted."""


def prototype_logits(
    model: Model,
    windows: Windows,
    classifiers: Sequence[Sequence[StageTensors]],
    inputs: pa.Table,
    *,
    training: Training,
    steps: Steps = SILENT,
) -> Scores:
    """The logits of some classifiers, each from the prototypes of its slices: cosines over TEMPERATURE.

    Args:
        classifiers: for each, the sums of its slices, in their order.

    Returns:
        One N x C for each classifier. A class without a record is as far as can be.
    """
    device = model.passes.device
    means = [_means(slices) for slices in classifiers]
    logits: Scores = np.zeros((len(means), inputs.num_rows, len(means[0][1]) if means else 1))
    with exact_numerics(device, training), model.mounted({}), torch.inference_mode():
        for window in windows.of(inputs, device):
            for rows, batch in window.batches():
                vectors = features(model.passes, batch).double().cpu()
                for number, (mean, known) in enumerate(means):
                    cosines = torch.where(known, vectors @ mean.t(), -1.0)
                    logits[number, rows] = (cosines / TEMPERATURE).numpy()
                steps.advance(len(rows) * len(means))
    return logits


def _means(slices: Sequence[StageTensors]) -> tuple[torch.Tensor, torch.Tensor]:
    """Class means of length 1, C x D; and a mask of the classes with a record, C."""
    sums = torch.stack([tensors.block[SUMS] for tensors in slices]).sum(dim=0)
    counts = torch.stack([tensors.block[COUNTS] for tensors in slices]).sum(dim=0)
    return torch.nn.functional.normalize(sums, dim=1), counts > 0
