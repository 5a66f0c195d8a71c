"""A model's transformer layers by parsed index, and the modules of a block by full name.

Names are never matched by substring: `"layer.1" in name` also matches layers 10 to 19.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.pytorch_utils import Conv1D

from s3t.models.source import unfit
from s3t.recipe import Adapter
from s3t.wording import did_you_mean


def find_layers(model: nn.Module, count: int) -> str:
    """Full name of the one outermost module list of `count` layers, such as bert.encoder.layer."""
    found: list[str] = []
    for name, module in model.named_modules():
        inner = any(name.startswith(f"{outer}.") for outer in found)
        if isinstance(module, nn.ModuleList) and len(module) == count and not inner:
            found.append(name)
    if len(found) != 1:
        raise unfit(
            f"base_model: {type(model).__name__} has {len(found)} lists of {count} layers "
            f"({', '.join(found) or 'none'}); s3t needs a model with one stack of transformer layers"
        )
    return found[0]


@contextmanager
def removed(*hooks: RemovableHandle) -> Iterator[None]:
    """Remove hooks at the end."""
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def forwards_replaced(forwards: Mapping[nn.Module, Callable[..., Any]]) -> Iterator[None]:
    """While within, modules have other forward functions."""
    try:
        for module, forward in forwards.items():
            vars(module)["forward"] = forward
        yield
    finally:
        for module in forwards:
            vars(module).pop("forward", None)  # the class's own is there again


def replace_conv1d(model: nn.Module) -> None:
    """Put linear modules in the place of transformers' Conv1D (GPT-2), which are linear modules with the transposed
    weight. Names and results stay.
    """
    for name, module in list(model.named_modules()):
        if not isinstance(module, Conv1D):
            continue
        linear = nn.Linear(module.nx, module.nf, bias=True, device="meta")
        linear.weight = nn.Parameter(module.weight.detach().t().contiguous())
        linear.bias = nn.Parameter(module.bias.detach())
        model.set_submodule(name, linear)


def block_layers(block: int, *, layers: int, layers_per_slice: int) -> tuple[int, ...]:
    """The layer indices of a block, which is 1 for the top one (paper, Section 3.2).

    >>> block_layers(1, layers=12, layers_per_slice=2), block_layers(6, layers=12, layers_per_slice=2)
    ((10, 11), (0, 1))
    """
    first = layers - block * layers_per_slice
    if block < 1 or first < 0:
        raise ValueError(f"block {block} of {layers_per_slice} layers does not fit a model of {layers} layers")
    return tuple(range(first, first + layers_per_slice))


def block_modules(model: nn.Module, path: str, adapter: Adapter, block: int) -> tuple[str, ...]:
    """Full names of the linear modules that a block adapts, in the model's order. `path` is that of the layers."""
    layers: Any = model.get_submodule(path)
    indices = block_layers(block, layers=len(layers), layers_per_slice=adapter.layers_per_slice)
    chosen: list[str] = []
    matched: set[str] = set()
    available: dict[str, None] = {}
    for index, layer in enumerate(layers):
        for tail, module in layer.named_modules():
            if not isinstance(module, nn.Linear) or type(module).__name__.endswith("Router"):
                continue  # a router of experts gives its choices beside the product
            available[tail] = None
            targets = [tail] if adapter.target_modules == "all-linear" else _matching(tail, adapter.target_modules)
            matched.update(targets)
            if targets and index in indices:
                chosen.append(f"{path}.{index}.{tail}")
    if not available:
        raise unfit(f"base_model: the layers of {type(model).__name__} hold no linear modules; s3t cannot adapt them")
    if adapter.target_modules != "all-linear":
        stray = [target for target in adapter.target_modules if target not in matched]
        if stray:
            raise unfit(
                f"adapter.target_modules: {', '.join(stray)}: no such linear module in the layers of "
                f"{type(model).__name__}; it has {', '.join(available)}"
                + (did_you_mean(stray[0], (name.rpartition(".")[2] for name in available)) if len(stray) == 1 else "")
            )
    if not chosen:
        raise unfit(
            f"adapter.target_modules: none of them is in the layers of block {block} of {type(model).__name__} "
            f"({', '.join(map(str, indices))}); name some of each block's"
        )
    return tuple(chosen)


def feedforward_modules(targets: Sequence[str], adapter: Adapter) -> list[str]:
    """The target modules whose input IA3 scales, instead of their output."""
    return [name for name in targets if _matching(name, adapter.feedforward_modules)]


def _matching(name: str, targets: Sequence[str]) -> list[str]:
    """The targets that are the last components of a dotted name."""
    parts = name.split(".")
    return [target for target in targets if parts[-len(target.split(".")) :] == target.split(".")]


class Float32Linear(nn.Linear):
    """A head that computes in float32 whatever the layers do: in bfloat16 2,000 and 2,005 are one number."""

    def forward(self, input: Tensor) -> Tensor:
        return in_float32(super().forward, input)


def in_float32(forward: Callable[[Tensor], Tensor], input: Tensor) -> Tensor:
    with torch.autocast(input.device.type, enabled=False):
        return forward(input.float())
