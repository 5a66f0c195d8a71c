"""The plain way to an ensemble's logits, to compare with: one pass after another, PEFT's adapters on the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy

import numpy as np
import torch
from peft import inject_adapter_in_model
from peft.tuners.lora import Linear
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from s3t.models.adapters import StageTensors
from s3t.models.blocks import BlockTensors, Model, OneProduct, peft_config
from s3t.models.encoders import Encoded, Encoder
from s3t.recipe import TrainingSettings
from s3t.tasks.aggregate import Scores
from s3t.training.numerics import exact_numerics


def member_logits(
    model: Model,
    chain: BlockTensors,
    inputs: Sequence[Encoded],
    *,
    encoder: Encoder,
    batch_size: int,
    training: TrainingSettings,
) -> Scores:
    """One member's logits of every input, N x C; the batches are the inputs in their order."""
    device = next(model.base.model.parameters()).device
    parts = []
    with exact_numerics(device, training), _with(model, chain) as member, torch.inference_mode():
        for start in range(0, len(inputs), batch_size):
            collated = encoder.collate(inputs[start : start + batch_size])
            batch = {name: tensor.to(device) for name, tensor in collated.items()}
            parts.append(member(**batch).logits.float().cpu().numpy().astype(np.float64))
    return np.concatenate(parts)


@contextmanager
def _with(model: Model, chain: BlockTensors) -> Iterator[nn.Module]:
    if model.adapter is not None:
        yield copy_with(model, chain)
        return
    with model.mounted(chain) as mount:
        yield mount.base.model


def copy_with(model: Model, chain: BlockTensors) -> nn.Module:
    """A copy of the bare model with a member's blocks as PEFT's modules, and its head."""
    copy, adapter = deepcopy(model.base.model), model.adapter
    assert adapter is not None
    for tensors in chain.values():
        targets = sorted({name.partition("/")[0] for name in tensors.block})
        if hasattr(copy, "peft_config"):
            del copy.peft_config  # or PEFT warns of a second adapter
        inject_adapter_in_model(peft_config(adapter, targets), copy, adapter_name="member")
        for target in targets:
            for name, parameter in copy.get_submodule(target).eval().named_parameters():
                if not name.startswith("base_layer."):
                    parameter.data = tensors.block[f"{target}/{name.replace('.member', '')}"].clone()
        for name, value in tensors.head.items():
            copy.get_parameter(name).data.copy_(value)
    return copy.requires_grad_(False)


def as_peft_computes(model: nn.Module) -> None:
    """Have PEFT's own forward pass compute a block that is on a model, not s3t's single product."""
    for module in model.modules():
        if isinstance(module, Linear):
            for name in [name for name, variant in module.lora_variant.items() if variant is OneProduct]:
                del module.lora_variant[name]
                module.cast_input_dtype_enabled = True


def merged_model(model: Model, chain: BlockTensors) -> nn.Module:
    """A copy with a member's blocks folded in by PEFT, as its `merge_and_unload` does."""
    copy = copy_with(model, chain)
    for name, module in list(copy.named_modules()):
        if isinstance(module, BaseTunerLayer):
            module.merge()
            copy.set_submodule(name, module.get_base_layer())
    return copy


def random_chain(
    model: Model, depth: int, *, seed: int, spread: float = 0.3, bottom_up: int | None = None
) -> BlockTensors:
    """Stages with random values around those of PEFT, as training might leave them, each with a head of its own.

    From the top block down; or from this one up.
    """
    blocks = range(1, depth + 1) if bottom_up is None else range(bottom_up, bottom_up - depth, -1)
    generator = torch.Generator().manual_seed(seed)

    def moved(values: torch.Tensor) -> torch.Tensor:
        return values + spread * torch.randn(values.shape, generator=generator)

    chain = {}
    model.reset_head(seed=seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for block in blocks:
            with model.mounted({}) as mount:
                mount.add_block(block)
                own = mount.own_tensors()
            chain[block] = StageTensors(
                block={name: moved(values) for name, values in own.block.items()},
                head={name: moved(values) for name, values in own.head.items()},
            )
    return chain
