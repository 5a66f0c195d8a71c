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
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, TypeAlias

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from s3t.errors import IntegrityError
from s3t.models.layers import Float32Linear, forwards_replaced, in_float32, removed
from s3t.recipe import Adapter

BLOCK, HEAD = "block/", "head/"


@dataclass(frozen=True, kw_only=True)
class StageTensors:
    """A stage's block, and the head as it was after it. On the CPU."""

    block: Mapping[str, Tensor]
    """Adapter tensors by `module/parameter`, such as bert.encoder.layer.5.attention.self.query/lora_A.weight; or a
    whole model's parameters by full name."""
    head: Mapping[str, Tensor]
    """Head tensors by full name."""
    members: int = 1
    """Models of which these tensors are the mean (`mean_of`)."""


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


def check_fit(shapes: Mapping[str, Sequence[int]], tensors: Mapping[str, Tensor], *, what: str) -> None:
    """Check that an artifact's tensors have exactly the model's names and shapes."""
    wrong = sorted(set(shapes) ^ set(tensors)) or [
        name for name, shape in shapes.items() if tuple(shape) != tensors[name].shape
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


Update: TypeAlias = Mapping[str, Tensor]
"""Adapter tensors of a linear module, those that it has of `down` (I x r), `up` (r x O), `gain` (O), `shift` (O) and
`input_gain` (I): of one member, or of G members with a leading dimension G."""


def adapter_shapes(linear: Any, adapter: Adapter, *, feedforward: bool) -> dict[str, tuple[int, ...]]:
    """Shapes of an adapter's tensors on a linear module, by PEFT's names. IA3 scales a feedforward module's input."""
    rows, columns = linear.out_features, linear.in_features
    if adapter.kind == "ia3":
        return {"ia3_l": (1, columns) if feedforward else (rows, 1)}
    magnitude: dict[str, tuple[int, ...]] = {"lora_magnitude_vector.weight": (rows,)} if adapter.use_dora else {}
    return {"lora_A.weight": (adapter.rank, columns), "lora_B.weight": (rows, adapter.rank)} | magnitude


def adapter_of_mean(adapter: Adapter, members: int) -> Adapter:
    """The adapter that `mean_of` some members has: of their ranks together."""
    return adapter.model_copy(update={"rank": members * adapter.rank})


def mean_of(chains: Sequence[Mapping[int, StageTensors]], adapter: Adapter | None) -> dict[int, StageTensors]:
    """One chain whose weights are the mean of those of several, which need not be as deep; of one it is that, of none
    it is empty. Not of DoRA.

    LoRA's updates are put beside each other. Their scale, alpha / r, is then the sum's, divided by their number.
    """
    if len(chains) < 2:
        return {**chains[0]} if chains else {}
    longest, last = max(chains, key=len), [[*chain.values()][-1] for chain in chains]
    head = {name: torch.stack([each.head[name] for each in last]).mean(dim=0) for name in last[0].head}

    def block(number: int) -> dict[str, Tensor]:
        return {
            name: _beside(
                [chain[number].block[name] if number in chain else None for chain in chains], like, name, adapter
            )
            for name, like in longest[number].block.items()
        }

    return {number: StageTensors(block=block(number), head=head, members=len(chains)) for number in longest}


def _beside(members: Sequence[Tensor | None], like: Tensor, name: str, adapter: Adapter | None) -> Tensor:
    """A tensor of the mean of some members, of which some may leave the base's weights as they are."""
    if adapter is None or adapter.kind == "ia3":
        return torch.stack([torch.ones_like(like) if own is None else own for own in members]).mean(dim=0)
    up = name.endswith("lora_B.weight")
    together = torch.cat([torch.zeros_like(like) if own is None else own for own in members], dim=int(up))
    return together / math.sqrt(len(members)) if up and adapter.use_rslora else together


def update_of(linear: Any, own: Mapping[str, Tensor], adapter: Adapter, *, feedforward: bool) -> Update:
    """The update of a bare linear module by its adapter's tensors, which have PEFT's names."""
    if adapter.kind == "ia3":
        return {"input_gain" if feedforward else "gain": own["ia3_l"].flatten().clone()}
    scale = adapter.alpha / (math.sqrt(adapter.rank) if adapter.use_rslora else adapter.rank)
    low, high = own["lora_A.weight"], own["lora_B.weight"] * scale
    down = low.t().clone(memory_format=torch.contiguous_format)
    if not adapter.use_dora:
        return {"down": down, "up": high.t().contiguous()}
    gain = own["lora_magnitude_vector.weight"] / torch.linalg.norm(linear.weight + high @ low, dim=1)
    shift = {} if linear.bias is None else {"shift": (1 - gain) * linear.bias}
    return {"down": down, "up": high.t() * gain, "gain": gain} | shift


Parameters: TypeAlias = Mapping[str, nn.Parameter]
"""Parameters of a module, by name, such as weight."""


def merge(linear: Any, update: Update) -> Parameters:
    """Parameters of a linear module with an update folded in: computed in float32, kept in the module's type."""
    merged = {name: parameter.float() for name, parameter in linear.named_parameters()}
    if "input_gain" in update:
        merged["weight"] = merged["weight"] * update["input_gain"]
    if "gain" in update:
        merged["weight"] = merged["weight"] * update["gain"][:, None]
        if "bias" in merged:
            merged["bias"] = merged["bias"] * update["gain"]
    if "shift" in update:
        merged["bias"] = merged["bias"] + update["shift"]
    if "down" in update:
        merged["weight"] = torch.addmm(merged["weight"], update["up"].t(), update["down"].t())
    return {
        name: nn.Parameter(tensor.detach().to(linear.weight.dtype), requires_grad=False)
        for name, tensor in merged.items()
    }


@contextmanager
def parameters_on(
    modules: Mapping[str, nn.Module], others: Iterable[Mapping[str, Parameters]]
) -> Iterator[dict[str, nn.Parameter]]:
    """While within, modules have other parameters; then their own, which it yields by full name."""
    own: dict[str, nn.Parameter] = {}
    try:
        for each in others:
            for path, parameters in each.items():
                present: dict[str, Any] = modules[path]._parameters  # get_parameter() takes longer than all else here
                for name, parameter in parameters.items():
                    own[f"{path}.{name}"] = present[name]
                    present[name] = parameter
        yield own
    finally:
        for full_name, parameter in own.items():
            path, _, name = full_name.rpartition(".")
            modules[path]._parameters[name] = parameter


@dataclass(frozen=True, kw_only=True)
class Link:
    """A stage of a member's chain, ready to answer: in float32, on the model's device."""

    block: int
    """Index of the trained block, 1 for the top block."""
    updates: Mapping[str, Update]
    """Updates of its block, by full name of the linear module; none of a whole model."""
    head: Mapping[str, Tensor]
    """The head as it was after the stage, by full name."""
    merged: Mapping[str, Parameters] | None = None
    """Parameters with the updates folded in, by full name of the module, if members answer with those; a whole model's
    parameters."""

    @cached_property
    def nbytes(self) -> int:
        """Memory, in bytes: of the tensors, and of the copies that a kept stack has of some of them, at most."""
        return sum(tensor.nbytes for tensor in [*self.tensors(), *self._stacked()])

    def tensors(self) -> list[Tensor]:
        """All that is in memory of the stage, but for the copies in a stack."""
        merged = {id(one): one for parameters in (self.merged or {}).values() for one in parameters.values()}
        return [*self._stacked(), *merged.values()]

    def _stacked(self) -> list[Tensor]:
        """Tensors that a stack copies."""
        return [*(tensor for update in self.updates.values() for tensor in update.values()), *self.head.values()]


class Stack:
    """The adapters of several members, block by block: the base runs once on the rows of all, and each adds its own
    update. Nothing of it is on the model but within `on`.

    The longest chains come first, so that the members that have a block are always the first ones. `heads` are linear
    modules of which each member has its own parameters, by full name; without, `heads_on` does nothing.
    """

    def __init__(
        self,
        modules: Mapping[str, Any],
        chains: Sequence[Sequence[Link]],
        *,
        dtype: torch.dtype,
        heads: Sequence[str] = (),
    ) -> None:
        self._modules = modules
        held = [{link.block: link.updates for link in chain} for chain in chains]
        if any(later.keys() - earlier.keys() for earlier, later in pairwise(held)):
            raise ValueError("the longest members come first")
        self._blocks = {
            block: _stacked([blocks[block] for blocks in held if block in blocks], dtype) for block in held[0]
        }
        self._heads = {
            target: {
                name: torch.stack([chain[-1].head[f"{target}.{name}"] for chain in chains]).to(of_head)
                for name, _ in modules[target].named_parameters()
            }
            for target in heads
            for of_head in [torch.float32 if isinstance(modules[target], Float32Linear) else dtype]
        }

    def tensors(self) -> list[Tensor]:
        """The copies."""
        updates = [update for block in self._blocks.values() for update in block.values()]
        return [tensor for each in [*updates, *self._heads.values()] for tensor in each.values()]

    @contextmanager
    def on(self, blocks: Iterable[int], members: slice, *, groups: int) -> Iterator[None]:
        """While within, the modules of some blocks add the updates of the members that have the block. Gradients pass.

        The model's rows are of `groups` members, as many for each, member after member; those that have a block are
        the first ones. For one member alone, it does not matter where in a module's input the rows are. `members` are
        positions in the chains.
        """
        hooks = []
        for target, update in ((each, own) for block in blocks for each, own in self._blocks.get(block, {}).items()):
            chosen = {name: tensor[members] for name, tensor in update.items()}
            if not len(next(iter(chosen.values()))):
                continue
            module = self._modules[target]
            if "input_gain" in chosen:
                hooks.append(module.register_forward_pre_hook(partial(_scale, chosen["input_gain"], groups)))
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
            module, forward = self._modules[target], partial(_through_heads, *own)
            forwards[module] = partial(in_float32, forward) if isinstance(module, Float32Linear) else forward
        return forwards_replaced(forwards)


def _stacked(members: Sequence[Mapping[str, Update]], dtype: torch.dtype) -> dict[str, Update]:
    """The updates of several members, by module. Products are computed in `dtype`."""
    stacked: dict[str, Update] = {}
    for target, update in members[0].items():
        together = {name: torch.stack([member[target][name] for member in members]) for name in update}
        stacked[target] = together | {name: together[name].to(dtype) for name in ("down", "up") if name in together}
    return stacked


class KeptStack:
    """The last stack, kept for the next answer of the same members until one of their links leaves memory.

    Links leave it when a deletion takes their stage, and so does the copy of their tensors here. `Link.nbytes` counts
    the copy, so a budget of links bounds it.
    """

    def __init__(self, modules: Mapping[str, Any], *, dtype: torch.dtype) -> None:
        self._modules, self._dtype = modules, dtype
        self._held: list[tuple[list[weakref.ref[Link]], Stack]] = []  # at most one

    def of(self, chains: Sequence[Sequence[Link]], *, heads: Sequence[str] = ()) -> Stack:
        """The stack of some members; the same heads for the same ones."""
        links = [link for chain in chains for link in chain]
        for references, stack in tuple(self._held):
            if len(references) == len(links) and all(a() is b for a, b in zip(references, links, strict=True)):
                return stack
        self._held.clear()
        stack, held = Stack(self._modules, chains, dtype=self._dtype, heads=heads), self._held
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
    (x,), own = args, len(next(iter(update.values())))
    # Autograd forbids changes in place of what a function of its own made (`quantized.py`).
    output = output.clone(memory_format=torch.contiguous_format) if output.requires_grad else output.contiguous()
    y_GRO = output.view(groups, -1, output.shape[-1])[:own]
    if "gain" in update:
        y_GRO.mul_(update["gain"][:, None])
    if "shift" in update:
        y_GRO.add_(update["shift"][:, None])
    if "down" in update:
        x_GRI = x.reshape(groups, -1, x.shape[-1])[:own].to(y_GRO.dtype)
        low_GRr = torch.bmm(x_GRI, update["down"].to(y_GRO.dtype))
        y_GRO.baddbmm_(low_GRr, update["up"].to(y_GRO.dtype))
    return output
