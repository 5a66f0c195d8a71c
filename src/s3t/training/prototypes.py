"""The prototypes of a slice (ProtoSISA; Yan et al. 2022, ARCANE): for every class, the sum of its records' features.

Sums are kept slice by slice, and made of a slice's present records whenever it has lost one. To subtract what left
would give other last bits than a slice that never had it, and they would be the record's.
"""

from __future__ import annotations

import torch

from s3t.models.encode import Encoder
from s3t.models.features import features
from s3t.models.model import Model
from s3t.models.tensors import StageTensors
from s3t.progress import SILENT, Steps
from s3t.recipe import Training
from s3t.training.batches import cut
from s3t.training.examples import EncodedSlice
from s3t.training.numerics import exact_numerics

SUMS, COUNTS = "sums", "counts"


def slice_prototypes(
    model: Model,
    contents: EncodedSlice,
    encoder: Encoder,
    *,
    labels: int,
    training: Training,
    steps: Steps = SILENT,
) -> StageTensors:
    """A slice's sums, C x D in float64, and its records of each class, C."""
    passes = model.passes
    lengths = contents.lengths or [0] * len(contents.records)
    order = sorted(range(len(contents.records)), key=lengths.__getitem__)
    batches = [torch.zeros(0, 0, dtype=torch.float64)]
    with exact_numerics(passes.device, training), model.mounted({}):
        for numbers in cut(order, training.batch_size):
            batch = {name: tensor.to(passes.device) for name, tensor in encoder.collate(contents.of(numbers)).items()}
            batches.append(features(passes, batch).double().cpu())
            steps.advance(len(numbers))
        targets = torch.cat([torch.zeros(0, dtype=torch.int64), *(contents.targets[number] for number in order)])
        of_class = torch.nn.functional.one_hot(targets, labels).double()
        sums, counts = of_class.t() @ torch.cat(batches[1:] or batches), of_class.sum(dim=0).long()
    return StageTensors(block={SUMS: sums, COUNTS: counts}, head={})
