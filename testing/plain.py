"""The plain way to an ensemble's logits, to compare with: one pass after another, PEFT's adapters on the model."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import numpy as np
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

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


def copy_with(model: Model, chain: Blocks) -> nn.Module:
    """A copy of the model with a member's blocks as PEFT's modules."""
    with model.mounted(chain) as mount:
        return deepcopy(mount.base.model)


def merged_model(model: Model, chain: Blocks) -> nn.Module:
    """A copy with a member's blocks folded in by PEFT, as its `merge_and_unload` does."""
    copy = copy_with(model, chain)
    for name, module in list(copy.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge()
            copy.set_submodule(name, module.get_base_layer())
    return copy


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
