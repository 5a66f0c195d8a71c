"""Prototypes of a slice (ProtoSISA; Yan et al. 2022, ARCANE): for every class, the sum of its records' features.

An input's answer is how near its feature is to each class's mean (Snell et al. 2017). Sums are kept slice by slice,
and made of a slice's present records whenever it has lost one. To subtract what left would give other last bits than a
slice that never had it, and they would be the record's.

Shapes: N inputs, T tokens, C labels, D features.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from s3t.events import Progress, WorkStep, silent
from s3t.models.adapters import StageTensors
from s3t.models.blocks import Model
from s3t.models.encoders import Encoder
from s3t.models.passes import Batch, Passes
from s3t.prediction.ensemble import Windows
from s3t.recipe import TrainingSettings
from s3t.tasks.aggregate import Scores
from s3t.training.examples import EncodedSlice, cut
from s3t.training.numerics import exact_numerics

SUMS, COUNTS = "sums", "counts"
TEMPERATURE = 0.05
"""Divisor of cosines, which scales them like trained logits. Declared, not fitted."""


def features(passes: Passes, batch: Batch) -> Tensor:
    """Features of a batch under the bare base model, N x D in float32: the mean of the last layer's token states,
    scaled to length 1. It needs no pooler or class token, which some architectures lack, and no trained tensor.
    """
    with torch.no_grad():
        states_NTD = passes.states(batch, [passes.top])[passes.top].float()
    mask = batch.get("attention_mask")
    held_NT1 = torch.ones_like(states_NTD[:, :, :1]) if mask is None else mask[:, :, None].float()
    mean_ND = (states_NTD * held_NT1).sum(dim=1) / held_NT1.sum(dim=1)
    return torch.nn.functional.normalize(mean_ND, dim=1)


def slice_prototypes(
    model: Model,
    contents: EncodedSlice,
    encoder: Encoder,
    *,
    labels: int,
    training: TrainingSettings,
    progress: Progress = silent,
) -> StageTensors:
    """A slice's sums, C x D in float64, and its records of each class, C."""
    passes = model.passes
    lengths = contents.lengths or [0] * len(contents.records)
    order = sorted(range(len(contents.records)), key=lengths.__getitem__)
    batches = [torch.zeros(0, 0, dtype=torch.float64)]
    device = model.base.device
    with exact_numerics(device, training), model.mounted({}):
        for numbers in cut(order, training.batch_size):
            batch = {name: tensor.to(device) for name, tensor in encoder.collate(contents.of(numbers)).items()}
            batches.append(features(passes, batch).double().cpu())
            progress(WorkStep(count=len(numbers)))
        targets = torch.cat([torch.zeros(0, dtype=torch.int64), *(contents.targets[number] for number in order)])
        of_class = torch.nn.functional.one_hot(targets, labels).double()
        sums, counts = of_class.t() @ torch.cat(batches[1:] or batches), of_class.sum(dim=0).long()
    return StageTensors(block={SUMS: sums, COUNTS: counts}, head={})


def prototype_logits(
    model: Model,
    windows: Windows,
    classifiers: Sequence[Sequence[StageTensors]],
    inputs: pa.Table,
    *,
    training: TrainingSettings,
    progress: Progress = silent,
) -> Scores:
    """The logits of classifiers, N x C each, from the prototypes of their slices: cosines over TEMPERATURE. A class
    without a record is as far as can be.
    """
    device = model.base.device
    means = [_means(slices) for slices in classifiers]
    logits: Scores = np.zeros((len(means), inputs.num_rows, len(means[0][1]) if means else 1))
    with exact_numerics(device, training), model.mounted({}), torch.inference_mode():
        for rows, batch in itertools.chain.from_iterable(windows.of(inputs, device)):
            vectors = features(model.passes, batch).double().cpu()
            for number, (mean, known) in enumerate(means):
                cosines = torch.where(known, vectors @ mean.t(), -1.0)
                logits[number, rows] = (cosines / TEMPERATURE).numpy()
            progress(WorkStep(count=len(rows) * len(means)))
    return logits


def _means(slices: Sequence[StageTensors]) -> tuple[Tensor, Tensor]:
    """Class means of length 1, C x D; and a mask of the classes with a record, C."""
    sums = torch.stack([tensors.block[SUMS] for tensors in slices]).sum(dim=0)
    counts = torch.stack([tensors.block[COUNTS] for tensors in slices]).sum(dim=0)
    return torch.nn.functional.normalize(sums, dim=1), counts > 0
