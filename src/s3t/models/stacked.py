"""Adapters of several members on one base model: the base runs once on the rows of all, and each adds its own update
(`models/updates.py`).

Shapes: G groups, one a member; R rows of each; I and O features that a linear module takes and gives; r the rank.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from s3t.models.base import Base
from s3t.models.links import Link
from s3t.models.updates import Update


class Stack:
    """The adapters of several members, block by block. Nothing of it is on the model but within `on`."""

    def __init__(
        self, base: Base, chains: Sequence[Sequence[Link]], *, dtype: torch.dtype, heads: Sequence[str] = ()
    ) -> None:
        """Copy the members' adapters together.

        Args:
            chains: the members', the longest first, so that those that have a block are always the first ones.
            heads: linear modules of which each member has its own parameters, by full name; none: `heads_on` does
                nothing.
        """
        held = [{link.block: link.updates for link in chain} for chain in chains]
        if any(later.keys() - earlier.keys() for earlier, later in pairwise(held)):
            raise ValueError("the longest members come first")
        self._blocks = {
            block: self._stacked([blocks[block] for blocks in held if block in blocks], dtype)
            for block in (held[0] if held else ())
        }
        self._heads = {
            target: {
                name: torch.stack([chain[-1].head[f"{target}.{name}"] for chain in chains]).to(dtype)
                for name, _ in base.model.get_submodule(target).named_parameters()
            }
            for target in heads
        }
        targets = [*(target for updates in self._blocks.values() for target in updates), *heads]
        # By name once: a walk for each would be a part of a single answer's time.
        self._modules: dict[str, Any] = {target: base.model.get_submodule(target) for target in targets}

    def tensors(self) -> list[Tensor]:
        """The copies."""
        updates = [update for block in self._blocks.values() for update in block.values()]
        adapters = [tensor for update in updates for tensor in update.tensors().values()]
        return [*adapters, *(tensor for parameters in self._heads.values() for tensor in parameters.values())]

    @staticmethod
    def _stacked(members: Sequence[Mapping[str, Update]], dtype: torch.dtype) -> dict[str, Update]:
        stacked = {}
        for target in members[0]:
            every = [member[target].tensors() for member in members]
            together = {name: torch.stack([tensors[name] for tensors in every]) for name in every[0]}
            together |= {name: together[name].to(dtype) for name in ("down", "up") if name in together}
            stacked[target] = Update(**together)
        return stacked

    @contextmanager
    def on(self, block: int, members: slice, *, groups: int) -> Iterator[None]:
        """While within, the modules of a block compute what they give for some members.

        The model's rows are of `groups` members, as many for each, member after member; those that have the block are
        the first ones. For one member alone, it does not matter where in a module's input the rows are.

        Args:
            members: positions in the chains; each of them has the block.
        """
        handles: list[RemovableHandle] = []
        updates = self._blocks[block] if members.stop > members.start else {}
        try:
            for target, update in updates.items():
                module = self._modules[target]
                chosen = Update(**{name: tensor[members] for name, tensor in update.tensors().items()})
                if chosen.input_gain is not None:
                    handles.append(module.register_forward_pre_hook(_scaling(chosen.input_gain, groups)))
                else:
                    handles.append(module.register_forward_hook(_updating(chosen, groups)))
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextmanager
    def heads_on(self, members: slice) -> Iterator[None]:
        """While within, each member's rows go through its own head. The head's rows are of these members, as many for
        each, member after member.
        """
        try:
            for target, parameters in self._heads.items():
                bias = parameters.get("bias")
                self._modules[target].forward = _through_heads(
                    parameters["weight"][members], None if bias is None else bias[members]
                )
            yield
        finally:
            for target in self._heads:
                vars(self._modules[target]).pop("forward", None)  # the class's own is there again


class KeptStack:
    """The last stack, kept for the next answer of the same members until one of their links leaves memory.

    Links leave it when a deletion takes their stage, and so does the copy of their tensors here. `Link.nbytes` counts
    the copy, so a budget of links bounds it.
    """

    def __init__(self) -> None:
        self._held: list[tuple[list[weakref.ref[Link]], Stack]] = []  # at most one

    def of(
        self, base: Base, chains: Sequence[Sequence[Link]], *, dtype: torch.dtype, heads: Sequence[str] = ()
    ) -> Stack:
        """The stack of some members; arguments as for `Stack`, but for the chains always the same."""
        links = [link for chain in chains for link in chain]
        for references, stack in tuple(self._held):
            if len(references) == len(links) and all(a() is b for a, b in zip(references, links, strict=True)):
                return stack
        self._held.clear()
        stack, held = Stack(base, chains, dtype=dtype, heads=heads), self._held
        if len(set(map(id, links))) == len(links):  # else it would be larger than the links
            held.append(([weakref.ref(link, lambda _: held.clear()) for link in links], stack))
        return stack


def _through_heads(weight_GOI: Tensor, bias_GO: Tensor | None) -> Any:
    """Forward of a linear module with parameters for each group of rows."""

    def forward(x: Tensor) -> Tensor:
        x_GRI = x.reshape(len(weight_GOI), -1, x.shape[-1]).to(weight_GOI.dtype)
        weight_GIO = weight_GOI.transpose(1, 2)
        if bias_GO is None:
            return torch.bmm(x_GRI, weight_GIO).view(*x.shape[:-1], -1)
        y_GRO = torch.baddbmm(bias_GO[:, None], x_GRI, weight_GIO)
        return y_GRO.view(*x.shape[:-1], -1)

    return forward


def _scaling(gain_GI: Tensor, groups: int) -> Any:
    own = gain_GI.shape[0]

    def scale(_module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        (x,) = args
        x_GRI = x.reshape(groups, -1, x.shape[-1])
        scaled = (x_GRI[:own] * gain_GI[:, None]).to(x.dtype)
        return (torch.cat([scaled, x_GRI[own:]]).view(x.shape) if own < groups else scaled.view(x.shape),)

    return scale


def _updating(update: Update, groups: int) -> Any:
    """A hook that changes in place what a linear module has just made."""
    own = next(iter(update.tensors().values())).shape[0]

    def add(_module: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
        (x,) = args
        output = output.contiguous()
        y_GRO = output.view(groups, -1, output.shape[-1])[:own]
        if update.gain is not None:
            y_GRO.mul_(update.gain[:, None])
        if update.shift is not None:
            y_GRO.add_(update.shift[:, None])
        if update.down is not None and update.up is not None:
            x_GRI = x.reshape(groups, -1, x.shape[-1])[:own].to(y_GRO.dtype)
            low_GRr = torch.bmm(x_GRI, update.down.to(y_GRO.dtype))
            y_GRO.baddbmm_(low_GRr, update.up.to(y_GRO.dtype))
        return output

    return add
