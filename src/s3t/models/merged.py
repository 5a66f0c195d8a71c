"""A member's adapters folded into copies of the base's weights, so that its pass costs what the bare base's costs.

The formula of `models/updates.py` is linear in x, so a linear module with an update is one with other parameters:

    weight' = diag(gain) weight diag(input_gain) + (down up)^T,    bias' = gain * bias + shift

The sums are rounded in another order, so results differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from s3t.models.base import Base
from s3t.models.layers import block_modules
from s3t.models.updates import Update
from s3t.recipe import Adapter

Parameters = Mapping[str, nn.Parameter]
"""Parameters of a linear module, by name: weight, and bias where it has one."""


def merge(linear: nn.Linear, update: Update) -> Parameters:
    """Parameters of a linear module with an update folded in: computed in float32, kept in the module's type."""
    weight: Tensor = linear.weight.float()
    bias: Tensor | None = None if linear.bias is None else linear.bias.float()
    if update.input_gain is not None:
        weight = weight * update.input_gain
    if update.gain is not None:
        weight = weight * update.gain[:, None]
        bias = None if bias is None else bias * update.gain
    if update.shift is not None and bias is not None:
        bias = bias + update.shift
    if update.down is not None and update.up is not None:
        weight = torch.addmm(weight, update.up.t(), update.down.t())
    merged = {"weight": weight, "bias": bias}
    return {
        name: nn.Parameter(tensor.detach().to(linear.weight.dtype), requires_grad=False)
        for name, tensor in merged.items()
        if tensor is not None
    }


def merged_nbytes(base: Base, adapter: Adapter, blocks: Iterable[int]) -> int:
    """Memory that the merged weights of some blocks take, in bytes."""
    linears = [
        base.model.get_submodule(name)
        for block in blocks
        for name in block_modules(base.model, base.layers, adapter, block)
    ]
    return sum(parameter.nbytes for linear in linears for parameter in linear.parameters())


@contextmanager
def merged_on(
    linears: Mapping[str, nn.Module], merged: Iterable[Mapping[str, Parameters]]
) -> Iterator[Mapping[str, nn.Parameter]]:
    """While within, linear modules have merged parameters; then their own, which it yields by full name."""
    own: dict[str, nn.Parameter] = {}
    try:
        for block in merged:
            for target, parameters in block.items():
                present: dict[str, Any] = linears[target]._parameters  # get_parameter() takes longer than all else here
                for name, parameter in parameters.items():
                    own[f"{target}.{name}"] = present[name]
                    present[name] = parameter
        yield own
    finally:
        for full_name, parameter in own.items():
            target, _, name = full_name.rpartition(".")
            linears[target]._parameters[name] = parameter
