"""Trained adapters without PEFT: a stage's tensors, the updates that they make, merged weights, and several members'
adapters side by side on one base model.

One formula holds what PEFT's modules compute, outside training, for every adapter that a recipe may have:

    y = gain * base(input_gain * x) + shift + x down up

    LoRA    down = A^T, up = s B^T, with s = alpha / r, or alpha / sqrt(r) (rsLoRA, arXiv 2312.03732)
    DoRA    that times gain = magnitude / |W + s B A|, by rows; shift = (1 - gain) bias (arXiv 2402.09353, 4.3)
    IA3     gain, or input_gain of feedforward modules (arXiv 2205.05638)

It is linear in x, so a linear module with an update is one with other parameters (sums are rounded in another order):

    weight' = diag(gain) weight diag(input_gain) + (down up)^T,    bias' = gain * bias + shift

Shapes: I and O features that a linear module takes and gives; r the rank; G groups, one a member; R rows of each.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from s3t.errors import IntegrityError
from s3t.models.base import Base
from s3t.models.layers import block_modules, feedforward_modules, forwards_replaced, removed
from s3t.recipe import Adapter

BLOCK, HEAD = "block/", "head/"


@dataclass(frozen=True, kw_only=True)
class StageTensors:
    """A stage's block, and the head as it was after it. On the CPU."""

    block: Mapping[str, Tensor]
    """Adapter tensors by `module/parameter`, such as bert.encoder.layer.5.attention.self.query/lora_A.weight."""
    head: Mapping[str, Tensor]
    """Head tensors by full name."""

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.block.values(), *self.head.values()))


def serialize(tensors: StageTensors) -> bytes:
    """A stage's tensors as a safetensors file. The same tensors give the same bytes."""
    block = {BLOCK + name: tensor for name, tensor in tensors.block.items()}
    return safetensors.torch.save(block | {HEAD + name: tensor for name, tensor in tensors.head.items()})


def deserialize(content: bytes) -> StageTensors:
    try:
        flat = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise IntegrityError(f"an artifact is not a safetensors file: {error}; run `s3t audit`") from error
    return StageTensors(
        block={name.removeprefix(BLOCK): tensor for name, tensor in flat.items() if name.startswith(BLOCK)},
        head={name.removeprefix(HEAD): tensor for name, tensor in flat.items() if name.startswith(HEAD)},
    )


def check_fit(shapes: Mapping[str, torch.Size], tensors: Mapping[str, Tensor], *, what: str) -> None:
    """Check that an artifact's tensors have exactly the model's names and shapes."""
    wrong = sorted(set(shapes) ^ set(tensors)) or [
        name for name, shape in shapes.items() if shape != tensors[name].shape
    ]
    if wrong:
        raise IntegrityError(
            f"{what} of an artifact does not fit the model: {', '.join(wrong[:5])}; the base model or PEFT has "
            "changed since it was trained"
        )


def copy_exactly(parameters: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor], *, what: str) -> None:
    """Give parameters the values of an artifact."""
    check_fit({name: parameter.shape for name, parameter in parameters.items()}, tensors, what=what)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def copied(parameter: Tensor) -> Tensor:
    """A copy on the CPU."""
    return parameter.detach().to("cpu", copy=True).contiguous()


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
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}


def _update_of(linear: nn.Linear, own: Mapping[str, Tensor], adapter: Adapter, *, feedforward: bool) -> Update:
    """The update of a bare linear module by its adapter's tensors, which have PEFT's names."""
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


class _Target(NamedTuple):
    """A linear module that a block adapts."""

    linear: Any
    feedforward: bool
    """IA3 scales its input."""
    shapes: Mapping[str, tuple[int, ...]]
    """Shapes of its adapter's tensors, by PEFT's name."""


def _targets(base: Base, adapter: Adapter, block: int) -> dict[str, _Target]:
    names = block_modules(base.model, base.layers, adapter, block)
    feedforward = set(feedforward_modules(names, adapter))
    found = {}
    for name in names:
        linear: Any = base.model.get_submodule(name)
        rows, columns = linear.out_features, linear.in_features
        shapes: dict[str, tuple[int, ...]]
        if adapter.kind == "ia3":
            shapes = {"ia3_l": (1, columns) if name in feedforward else (rows, 1)}
        else:
            shapes = {"lora_A.weight": (adapter.rank, columns), "lora_B.weight": (rows, adapter.rank)}
            shapes |= {"lora_magnitude_vector.weight": (rows,)} if adapter.use_dora else {}
        found[name] = _Target(linear=linear, feedforward=name in feedforward, shapes=shapes)
    return found


def prepare(base: Base, adapter: Adapter, block: int, tensors: StageTensors, *, merged: bool = False) -> Link:
    """A stage's tensors as the formula takes them. The base is bare: DoRA looks at its weights, here and once."""
    targets = _targets(base, adapter, block)
    shapes = {f"{name}/{part}": torch.Size(size) for name, one in targets.items() for part, size in one.shapes.items()}
    check_fit(shapes, tensors.block, what=f"block {block}")
    check_fit({name: value.shape for name, value in base.head_parameters().items()}, tensors.head, what="the head")
    device = base.device
    updates = {}
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        for name, target in targets.items():
            own = {part: tensors.block[f"{name}/{part}"].to(device) for part in target.shapes}
            updates[name] = _update_of(target.linear, own, adapter, feedforward=target.feedforward)
        # Copies: as read, they lie in the memory of the whole file, and anywhere in it (see base._align).
        head = {name: tensor.to(device).clone() for name, tensor in tensors.head.items()}
        folded = None
        if merged:
            folded = {name: merge(targets[name].linear, update) for name, update in updates.items()}
    return Link(block=block, updates=updates, head=head, merged=folded)


def prepared_nbytes(base: Base, adapter: Adapter, blocks: Iterable[int]) -> tuple[int, int]:
    """Memory of some blocks' links in bytes: of their merged weights, and of these and all else (`Link.nbytes`)."""
    head = sum(value.numel() for value in base.head_parameters().values())
    values = merged = 0
    for block in blocks:
        values += head
        for target in _targets(base, adapter, block).values():
            values += sum(math.prod(shape) for shape in target.shapes.values())
            values += target.linear.out_features if adapter.use_dora and target.linear.bias is not None else 0  # shift
            merged += sum(parameter.nbytes for parameter in target.linear.parameters())
    return merged, 2 * values * torch.float32.itemsize + merged


class Stack:
    """The adapters of several members, block by block: the base runs once on the rows of all, and each adds its own
    update. Nothing of it is on the model but within `on`.

    Args:
        chains: the members', the longest first, so that those that have a block are always the first ones.
        heads: linear modules of which each member has its own parameters, by full name; none: `heads_on` does nothing.
    """

    def __init__(
        self, base: Base, chains: Sequence[Sequence[Link]], *, dtype: torch.dtype, heads: Sequence[str] = ()
    ) -> None:
        held = [{link.block: link.updates for link in chain} for chain in chains]
        if any(later.keys() - earlier.keys() for earlier, later in pairwise(held)):
            raise ValueError("the longest members come first")
        self._blocks = {
            block: _stacked([blocks[block] for blocks in held if block in blocks], dtype)
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

    @contextmanager
    def on(self, block: int, members: slice, *, groups: int) -> Iterator[None]:
        """While within, the modules of a block compute what they give for some members. Gradients pass.

        The model's rows are of `groups` members, as many for each, member after member; those that have the block are
        the first ones. For one member alone, it does not matter where in a module's input the rows are. `members` are
        positions in the chains; each of them has the block.
        """
        updates = self._blocks[block] if members.stop > members.start else {}
        hooks = []
        for target, update in updates.items():
            module = self._modules[target]
            chosen = Update(**{name: tensor[members] for name, tensor in update.tensors().items()})
            if chosen.input_gain is not None:
                hooks.append(module.register_forward_pre_hook(partial(_scale, chosen.input_gain, groups)))
            else:
                hooks.append(module.register_forward_hook(partial(_add, chosen, groups)))
        with removed(*hooks):
            yield

    def heads_on(self, members: slice) -> AbstractContextManager[None]:
        """While within, each member's rows go through its own head. The head's rows are of these members, as many for
        each, member after member.
        """
        forwards = {}
        for target, parameters in self._heads.items():
            bias = parameters.get("bias")
            own = parameters["weight"][members], None if bias is None else bias[members]
            forwards[self._modules[target]] = partial(_through_heads, *own)
        return forwards_replaced(forwards)


def _stacked(members: Sequence[Mapping[str, Update]], dtype: torch.dtype) -> dict[str, Update]:
    stacked = {}
    for target in members[0]:
        every = [member[target].tensors() for member in members]
        together = {name: torch.stack([tensors[name] for tensors in every]) for name in every[0]}
        together |= {name: together[name].to(dtype) for name in ("down", "up") if name in together}
        stacked[target] = Update(**together)
    return stacked


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


def _through_heads(weight_GOI: Tensor, bias_GO: Tensor | None, x: Tensor) -> Tensor:
    """Forward of a linear module with parameters for each group of rows."""
    x_GRI = x.reshape(len(weight_GOI), -1, x.shape[-1]).to(weight_GOI.dtype)
    weight_GIO = weight_GOI.transpose(1, 2)
    if bias_GO is None:
        return torch.bmm(x_GRI, weight_GIO).view(*x.shape[:-1], -1)
    return torch.baddbmm(bias_GO[:, None], x_GRI, weight_GIO).view(*x.shape[:-1], -1)


def _scale(gain_GI: Tensor, groups: int, _module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
    """A hook that changes what a linear module gets."""
    (x,) = args
    own, x_GRI = len(gain_GI), x.reshape(groups, -1, x.shape[-1])
    scaled = (x_GRI[:own] * gain_GI[:, None]).to(x.dtype)
    return (torch.cat([scaled, x_GRI[own:]]).view(x.shape) if own < groups else scaled.view(x.shape),)


def _add(update: Update, groups: int, _module: nn.Module, args: tuple[Tensor], output: Tensor) -> Tensor:
    """A hook that changes what a linear module has just made, in place where no gradient passes."""
    (x,) = args
    own = len(next(iter(update.tensors().values())))
    # Autograd forbids changes in place of what a function of its own made (`quantized.py`).
    output = output.clone(memory_format=torch.contiguous_format) if output.requires_grad else output.contiguous()
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
