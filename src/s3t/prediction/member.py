"""One member's logits: the base model with a prefix's blocks on, and that prefix's own head."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from s3t.models.blocks import BlockModel
from s3t.models.encode import Encoded, Encoder
from s3t.models.tensors import StageTensors
from s3t.prediction.aggregate import Scores
from s3t.recipe import Training
from s3t.training.numerics import exact_numerics


def member_logits(
    model: BlockModel,
    chain: Sequence[StageTensors],
    inputs: Sequence[Encoded],
    *,
    encoder: Encoder,
    batch_size: int,
    training: Training,
    on_batch: Callable[[int], None] = lambda count: None,
) -> Scores:
    """Logits of every input, N x C (one column for a regression).

    The batches are the inputs in their order, so the same inputs give the same bits.

    Args:
        model: the base model.
        chain: the prefix's stages, top block first, at least one.
        inputs: encoded one by one.
        encoder: pads batches.
        batch_size: inputs a forward pass.
        training: precision and threads (resolved), the same as in training.
        on_batch: told the number of inputs of each batch.
    """
    device = next(model.base.model.parameters()).device
    parts = []
    with exact_numerics(device, training), model.mounted(chain) as mount, torch.inference_mode():
        for start in range(0, len(inputs), batch_size):
            part = inputs[start : start + batch_size]
            batch = {name: tensor.to(device) for name, tensor in encoder.collate(part).items()}
            logits = mount.base.model(**batch).logits
            parts.append(logits.float().cpu().numpy().astype(np.float64))
            on_batch(len(part))
    if not parts:
        return np.zeros((0, 1))
    return np.concatenate(parts)
