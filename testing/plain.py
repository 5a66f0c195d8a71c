"""The plain way to an ensemble's logits, to compare with: one pass after another, PEFT's adapters on the model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from s3t.models.encode import Encoded, Encoder
from s3t.models.model import Blocks, Model
from s3t.models.tensors import StageTensors
from s3t.recipe import Training
from s3t.tasks.aggregate import Scores
from s3t.training.numerics import exact_numerics


def member_logits(
    model: Model,
    chain: Blocks,
    inputs: Sequence[Encoded],
    *,
    encoder: Encoder,
    batch_size: int,
    training: Training,
) -> Scores:
    """One member's logits of every input, N x C; the batches are the inputs in their order."""
    device = next(model.base.model.parameters()).device
    parts = []
    with exact_numerics(device, training), model.mounted(chain) as mount, torch.inference_mode():
        for start in range(0, len(inputs), batch_size):
            collated = encoder.collate(inputs[start : start + batch_size])
            batch = {name: tensor.to(device) for name, tensor in collated.items()}
            parts.append(mount.base.model(**batch).logits.float().cpu().numpy().astype(np.float64))
    return np.concatenate(parts)


def random_chain(model: Model, depth: int, *, seed: int, spread: float = 0.3, bottom_up: int | None = None) -> Blocks:
    """Stages with random values around those of PEFT, as training might leave them, each with a head of its own.

    From the top block down; or from this one up.
    """
    blocks = range(1, depth + 1) if bottom_up is None else range(bottom_up, bottom_up - depth, -1)
    generator = torch.Generator().manual_seed(seed)

    def moved(values: torch.Tensor) -> torch.Tensor:
        return values + spread * torch.randn(values.shape, generator=generator)

    chain = {}
    model.reset_head(seed=seed)
    with torch.random.fork_rng(devices=[]), model.mounted({}) as mount:
        torch.manual_seed(seed)
        for block in blocks:
            mount.add_block(block)
            own = mount.own_tensors()
            chain[block] = StageTensors(
                block={name: moved(values) for name, values in own.block.items()},
                head={name: moved(values) for name, values in own.head.items()},
            )
    return chain
