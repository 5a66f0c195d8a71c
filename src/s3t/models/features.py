"""What the bare base model makes of a record, as one vector: for prototypes.

The mean over the record's tokens of what the last layer gives, scaled to length 1. It asks for nothing that some
architecture lacks (a pooler, a class token), and no trained tensor has a part in it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from s3t.models.passes import Batch, Passes


def features(passes: Passes, batch: Batch) -> Tensor:
    """Of a batch, N x D, in float32.

    Args:
        passes: through the bare base model; within `exact_numerics`.
        batch: as the encoder collates it.
    """
    with torch.no_grad():
        states_NTD = passes.states(batch, [passes.top])[passes.top].float()  # noqa: N806
    mask = batch.get("attention_mask")
    held_NT1 = torch.ones_like(states_NTD[:, :, :1]) if mask is None else mask[:, :, None].float()  # noqa: N806
    mean_ND = (states_NTD * held_NT1).sum(dim=1) / held_NT1.sum(dim=1)  # noqa: N806
    return torch.nn.functional.normalize(mean_ND, dim=1)
