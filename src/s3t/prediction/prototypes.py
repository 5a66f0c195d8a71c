"""Prototypes of a slice (ProtoSISA; Yan et al. 2022, ARCANE): for every class, the sum of its records' features.

An input's answer is how near its feature is to each class's mean (Snell et al. 2017). Sums are kept slice by slice,
and made of a slice's present records whenever it has lost one. To subtract what left would give other last bits than a
slice that never had it, and they would be the record's.

Shapes: N inputs, C labels, D features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from s3t.models.adapters import StageTensors

SUMS, COUNTS = "sums", "counts"
TEMPERATURE = 0.05
"""Divisor of cosines, which scales them like trained logits. Declared, not fitted."""


def prototypes(features_ND: Tensor, targets_N: Tensor, *, labels: int) -> StageTensors:
    """A slice's sums, C x D in float64, and its records of each class, C."""
    of_class = one_hot(targets_N.long(), labels).double()
    sums = of_class.t() @ features_ND.double()
    return StageTensors(block={SUMS: sums, COUNTS: of_class.sum(dim=0).long()}, head={})


@dataclass(frozen=True)
class Nearest:
    """The head of prototypes."""

    means: Tensor
    """C x D, each of length 1."""
    known: Tensor
    """C: classes with a record; another is as far as can be."""

    @classmethod
    def of(cls, slices: Sequence[StageTensors]) -> Self:
        sums = torch.stack([tensors.block[SUMS] for tensors in slices]).sum(dim=0)
        counts = torch.stack([tensors.block[COUNTS] for tensors in slices]).sum(dim=0)
        return cls(normalize(sums, dim=1), counts > 0)

    def logits(self, features_ND: Tensor) -> Tensor:
        """Cosines over TEMPERATURE, N x C."""
        return torch.where(self.known, features_ND.double() @ self.means.t(), -1.0) / TEMPERATURE
