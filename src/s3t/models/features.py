"""Feature vector of a record under the bare base model, for prototypes.

It is the mean of the last layer's token states, scaled to length 1. It needs no pooler or class token, which some
architectures lack, and depends on no trained tensor.
"""

from __future__ import annotations

import torch
from torch import Tensor

from s3t.models.passes import Batch, Passes


def features(passes: Passes, batch: Batch) -> Tensor:
    """Features of a batch, N x D, in float32.

    Args:
        passes: through the bare base model; within `exact_numerics`.
    """
    with torch.no_grad():
        states_NTD = passes.states(batch, [passes.top])[passes.top].float()
    mask = batch.get("attention_mask")
    held_NT1 = torch.ones_like(states_NTD[:, :, :1]) if mask is None else mask[:, :, None].float()
    mean_ND = (states_NTD * held_NT1).sum(dim=1) / held_NT1.sum(dim=1)
    return torch.nn.functional.normalize(mean_ND, dim=1)
