"""Update of a linear module by a trained adapter, without PEFT.

One formula holds what PEFT's modules compute, outside training, for every adapter that a recipe may have:

    y = gain * base(input_gain * x) + shift + x down up

    LoRA    down = A^T, up = s B^T, with s = alpha / r, or alpha / sqrt(r) (rsLoRA, arXiv 2312.03732)
    DoRA    that times gain = magnitude / |W + s B A|, by rows; shift = (1 - gain) bias (arXiv 2402.09353, 4.3)
    IA3     gain, or input_gain of feedforward modules (arXiv 2205.05638)

Shapes: I and O features that a linear module takes and gives; r the rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from s3t.recipe import Adapter


@dataclass(frozen=True, kw_only=True)
class Update:
    """Adapter tensors of a linear module: of one member, or of G members with a leading dimension G."""

    down: Tensor | None = None
    """I x r."""
    up: Tensor | None = None
    """r x O."""
    gain: Tensor | None = None
    """O."""
    shift: Tensor | None = None
    """O."""
    input_gain: Tensor | None = None
    """I."""

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of this kind of adapter, by name."""
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}


def adapter_shapes(linear: nn.Linear, adapter: Adapter, *, feedforward: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of PEFT's module, by name."""
    if adapter.kind == "ia3":
        return {"ia3_l": (1, linear.in_features) if feedforward else (linear.out_features, 1)}
    shapes: dict[str, tuple[int, ...]] = {
        "lora_A.weight": (adapter.rank, linear.in_features),
        "lora_B.weight": (linear.out_features, adapter.rank),
    }
    return shapes | ({"lora_magnitude_vector.weight": (linear.out_features,)} if adapter.use_dora else {})


def update_of(linear: nn.Linear, own: Mapping[str, Tensor], adapter: Adapter, *, feedforward: bool) -> Update:
    """The update of a bare linear module by its adapter's tensors, named as `adapter_shapes` has them."""
    if adapter.kind == "ia3":
        vector = own["ia3_l"].flatten().clone()
        return Update(input_gain=vector) if feedforward else Update(gain=vector)
    scale = adapter.alpha / (math.sqrt(adapter.rank) if adapter.use_rslora else adapter.rank)
    low, high = own["lora_A.weight"], own["lora_B.weight"] * scale
    down = low.t().clone(memory_format=torch.contiguous_format)
    if not adapter.use_dora:
        return Update(down=down, up=high.t().contiguous())
    gain = own["lora_magnitude_vector.weight"] / torch.linalg.norm(linear.weight + high @ low, dim=1)
    shift = None if linear.bias is None else (1 - gain) * linear.bias
    return Update(down=down, up=high.t() * gain, gain=gain, shift=shift)


@contextmanager
def updates_on(
    modules: Mapping[str, nn.Module], blocks: Iterable[Mapping[str, Update]], *, dtype: torch.dtype
) -> Iterator[list[Tensor]]:
    """While within, linear modules compute with the updates of blocks; yields the updates' tensors. Gradients pass.

    For weights that cannot take an update in (`models/quantized.py`). Those that can pass faster merged.
    """
    tensors: list[Tensor] = []
    with ExitStack() as stack:
        for block in blocks:
            for target, update in block.items():
                low = {name: value.to(dtype) for name, value in update.tensors().items() if name in ("down", "up")}
                update = Update(**(update.tensors() | low))
                tensors += update.tensors().values()
                module = modules[target]
                if update.input_gain is not None:
                    handle = module.register_forward_pre_hook(_scaling(update.input_gain))
                else:
                    handle = module.register_forward_hook(_adding(update))
                stack.callback(handle.remove)
        yield tensors


def _scaling(gain_I: Tensor) -> Any:
    def scale(_module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        return ((args[0] * gain_I).to(args[0].dtype),)

    return scale


def _adding(update: Update) -> Any:
    def add(_module: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        y = output if update.gain is None else (output * update.gain).to(output.dtype)
        y = y if update.shift is None else (y + update.shift).to(output.dtype)
        if update.down is None or update.up is None:
            return y
        low = args[0].reshape(-1, args[0].shape[-1]).to(y.dtype) @ update.down
        return torch.addmm(y.reshape(-1, y.shape[-1]), low, update.up).view(y.shape)

    return add
