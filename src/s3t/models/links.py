"""Trained stages as an ensemble and later stages take them: updates of a block's modules, merged weights, the head."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from s3t.models.base import Base
from s3t.models.layers import block_modules, feedforward_modules
from s3t.models.merged import Parameters, merge, merged_nbytes
from s3t.models.tensors import StageTensors, check_fit
from s3t.models.updates import Update, adapter_shapes, update_of
from s3t.recipe import Adapter


@dataclass(frozen=True, kw_only=True)
class Link:
    """A stage of a member's chain, ready to be stacked: in float32, on the model's device."""

    block: int
    """Index of the trained block, 1 for the top block."""
    updates: Mapping[str, Update]
    """Updates of its block, by full name of the linear module."""
    head: Mapping[str, Tensor]
    """The head as it was after the stage, by full name."""
    merged: Mapping[str, Parameters] | None = None
    """Parameters of the linear modules with the updates folded in, by full name, if members answer with those."""

    @property
    def nbytes(self) -> int:
        """Memory, in bytes: of the tensors, and of the copies that a kept stack has of some of them, at most."""
        return sum(tensor.nbytes for tensor in [*self.tensors(), *self._stacked()])

    def tensors(self) -> list[Tensor]:
        """All that is in memory of the stage, but for the copies in a stack."""
        merged = [tensor for parameters in (self.merged or {}).values() for tensor in parameters.values()]
        return [*self._stacked(), *merged]

    def _stacked(self) -> list[Tensor]:
        """Tensors that a stack copies."""
        updates = [tensor for update in self.updates.values() for tensor in update.tensors().values()]
        return [*updates, *self.head.values()]


def prepare(base: Base, adapter: Adapter, block: int, tensors: StageTensors, *, merged: bool = False) -> Link:
    """A stage's tensors as the formula takes them.

    Args:
        base: bare; what a DoRA block needs of it is looked at here, once.
    """
    model = base.model
    linears: dict[str, Any] = {
        name: model.get_submodule(name) for name in block_modules(model, base.layers, adapter, block)
    }
    inner = set(feedforward_modules(list(linears), adapter))
    shapes = {
        f"{target}/{name}": torch.Size(shape)
        for target, linear in linears.items()
        for name, shape in adapter_shapes(linear, adapter, feedforward=target in inner).items()
    }
    check_fit(shapes, tensors.block, what=f"block {block}")
    check_fit({name: model.get_parameter(name).shape for name in base.head}, tensors.head, what="the head")
    device = base.device
    updates = {}
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        for target, linear in linears.items():
            own = {
                name: tensors.block[f"{target}/{name}"].to(device)
                for name in adapter_shapes(linear, adapter, feedforward=target in inner)
            }
            updates[target] = update_of(linear, own, adapter, feedforward=target in inner)
        # Copies: as read, they lie in the memory of the whole file, and anywhere in it (see base._align).
        head = {name: tensor.to(device).clone() for name, tensor in tensors.head.items()}
        folded = None
        if merged:
            folded = {name: merge(linears[name], update) for name, update in updates.items()}
    return Link(block=block, updates=updates, head=head, merged=folded)


def prepared_nbytes(base: Base, adapter: Adapter, blocks: Iterable[int]) -> int:
    """Memory that the links of some blocks take with merged weights, in bytes; as `Link.nbytes`."""
    blocks, heads = list(blocks), sum(value.numel() for value in base.head_parameters().values())
    values = len(blocks) * heads
    for block in blocks:
        targets = block_modules(base.model, base.layers, adapter, block)
        inner = set(feedforward_modules(targets, adapter))
        for target in targets:
            linear: Any = base.model.get_submodule(target)
            shapes = adapter_shapes(linear, adapter, feedforward=target in inner).values()
            values += sum(math.prod(shape) for shape in shapes)
            values += linear.out_features if adapter.use_dora and linear.bias is not None else 0  # the shift
    return 2 * values * torch.float32.itemsize + merged_nbytes(base, adapter, blocks)


def deepest(chain: Sequence[Link]) -> int:
    """The lowest block of a member; 0 where it has none."""
    return max((link.block for link in chain), default=0)
