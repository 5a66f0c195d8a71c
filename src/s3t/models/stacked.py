"""Adapters of several members on one base model: the base runs once on the rows of all, and each adds its own update.

One formula holds what PEFT's modules compute, outside training, for every adapter that a recipe may have:

    y = gain * base(input_gain * x) + shift + x down up

    LoRA    down = A^T, up = s B^T, with s = alpha / r, or alpha / sqrt(r) (rsLoRA, arXiv 2312.03732)
    DoRA    that times gain = magnitude / |W + s B A|, by rows; shift = (1 - gain) bias (arXiv 2402.09353, 4.3)
    IA3     gain, or input_gain of feedforward modules (arXiv 2205.05638)

Shapes: G groups, one a member; R rows of each; I and O features that a linear module takes and gives; r the rank.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from s3t.models.base import Base
from s3t.models.layers import block_modules, feedforward_modules
from s3t.models.merged import Parameters, merge, merged_nbytes
from s3t.models.tensors import StageTensors, check_fit
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
        """What a stack copies."""
        updates = [tensor for update in self.updates.values() for tensor in update.tensors().values()]
        return [*updates, *self.head.values()]


def prepare(base: Base, adapter: Adapter, block: int, tensors: StageTensors, *, merged: bool = False) -> Link:
    """A stage's tensors as the formula takes them.

    Args:
        base: bare; what a DoRA block needs of it is looked at here, once.
        merged: whether to make merged weights, too.

    Raises:
        IntegrityError: names or shapes are not those of the block or the head.
    """
    model = base.model
    linears: dict[str, Any] = {
        name: model.get_submodule(name) for name in block_modules(model, base.layers, adapter, block)
    }
    inner = set(feedforward_modules(list(linears), adapter))
    shapes = {
        f"{target}/{name}": torch.Size(shape)
        for target, linear in linears.items()
        for name, shape in _shapes(linear, adapter, feedforward=target in inner).items()
    }
    check_fit(shapes, tensors.block, what=f"block {block}")
    check_fit({name: model.get_parameter(name).shape for name in base.head}, tensors.head, what="the head")
    device = model.get_parameter(base.head[0]).device
    updates = {}
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        for target, linear in linears.items():
            own = {
                name: tensors.block[f"{target}/{name}"].to(device)
                for name in _shapes(linear, adapter, feedforward=target in inner)
            }
            updates[target] = _update(linear, own, adapter, feedforward=target in inner)
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
            shapes = _shapes(linear, adapter, feedforward=target in inner).values()
            values += sum(math.prod(shape) for shape in shapes)
            values += linear.out_features if adapter.use_dora and linear.bias is not None else 0  # the shift
    return 2 * values * torch.float32.itemsize + merged_nbytes(base, adapter, blocks)


def deepest(chain: Sequence[Link]) -> int:
    """The lowest block of a member; 0 where it has none."""
    return max((link.block for link in chain), default=0)


def _shapes(linear: nn.Linear, adapter: Adapter, *, feedforward: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors of PEFT's module, by name."""
    if adapter.kind == "ia3":
        return {"ia3_l": (1, linear.in_features) if feedforward else (linear.out_features, 1)}
    shapes: dict[str, tuple[int, ...]] = {
        "lora_A.weight": (adapter.rank, linear.in_features),
        "lora_B.weight": (linear.out_features, adapter.rank),
    }
    return shapes | ({"lora_magnitude_vector.weight": (linear.out_features,)} if adapter.use_dora else {})


def _update(linear: nn.Linear, own: Mapping[str, Tensor], adapter: Adapter, *, feedforward: bool) -> Update:
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


class Stack:
    """The adapters of several members, block by block. Nothing of it is on the model but within `on`."""

    def __init__(
        self, base: Base, chains: Sequence[Sequence[Link]], *, dtype: torch.dtype, heads: Sequence[str] = ()
    ) -> None:
        """Copy the members' adapters together.

        Args:
            base: the model that they belong on.
            chains: the members', the longest first, so that those that have a block are always the first ones.
            dtype: of matrix products.
            heads: linear modules of which each member has its own parameters, by full name; none: `heads_on` does
                nothing.

        Raises:
            ValueError: a member has a block that the one before it lacks.
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
