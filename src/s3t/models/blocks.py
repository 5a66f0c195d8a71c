"""A base model that stages train and that answers, whatever they train: blocks of adapters, or the model itself.

Trained blocks are merged into copies of the base's weights, or computed beside quantised ones; PEFT puts on the one
that is trained. A whole model's parameters take the place of the base's. Every mount starts from the bare base model
and takes every tensor of every block, so that no block keeps its initial values.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Self, TypeAlias

import torch
from peft import IA3Config, LoraConfig, PeftConfig, inject_adapter_in_model
from peft.tuners.lora import Linear
from peft.tuners.lora.layer import LoraVariant
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from s3t.errors import IsolationError, listed
from s3t.models.adapters import (
    Link,
    Parameters,
    Stack,
    StageTensors,
    adapter_of_mean,
    adapter_shapes,
    check_fit,
    copy_exactly,
    merge,
    parameters_on,
    update_of,
)
from s3t.models.base import Base, base_digest
from s3t.models.layers import block_modules, feedforward_modules
from s3t.models.passes import Passes
from s3t.models.source import unfit
from s3t.recipe import Adapter

BlockTensors: TypeAlias = Mapping[int, StageTensors]
"""Blocks by number, 1 at the top, in the order in which stages trained them; each with what its stage left."""


class Model:
    """A base model that blocks are mounted on: those of a chain of stages, and at most one that is added to be trained.

    Without an adapter the one block is every parameter but the head's (the original SISA; Bourtoule et al. 2021).
    Tensors of an artifact that do not fit raise IntegrityError. A change of what is not the stage's own raises
    IsolationError.
    """

    def __init__(self, base: Base, adapter: Adapter | None) -> None:
        self.base = base
        self.adapter = adapter
        self.passes = Passes(base)
        self.modules: Mapping[str, nn.Module] = dict(base.model.named_modules())
        """The bare model's modules by full name; listed once, for a walk would be a part of a single answer's time."""
        self._pristine = base_digest(base)
        self._bare_head = {name: value.detach().clone() for name, value in base.head_parameters().items()}
        self._mount: ExitStack | None = None
        self._targets: tuple[str, ...] = ()
        """Modules that PEFT was asked to adapt."""
        self._replaced: Mapping[str, nn.Parameter] = {}
        """The base's own parameters in whose place others are."""
        self._beside: Sequence[Tensor] = ()
        """Updates that are computed beside the weights."""
        self._frozen: Sequence[str] = ()
        """Full names of parameters that earlier stages trained."""
        self._digest = ""
        """Hash of these parameters and updates, as they were put on."""

    @contextmanager
    def mounted(self, blocks: BlockTensors) -> Iterator[Self]:
        """The model with some blocks on, and the head of the stage that trained the last of them.

        Without blocks: the base model, its head as it is. On leaving, all tensors are as loaded again (no trained head
        stays behind), and nothing is trainable.
        """
        if self._mount is not None:
            raise IsolationError("this model has blocks on it already; leave the first `mounted` block first")
        quantized = self.base.quantized
        links = (self.prepare(block, tensors, merged=not quantized) for block, tensors in blocks.items())
        with ExitStack() as self._mount:
            self._mount.callback(self._leave)
            if quantized and blocks:
                together = Stack(self.modules, [list(links)], dtype=self.base.dtype)
                self._beside = together.tensors()
                self._mount.enter_context(together.on(blocks, slice(0, 1), groups=1))
            else:
                self._replaced = self._mount.enter_context(self.merged_on(links))
            self._frozen = tuple(self._replaced)
            self._digest = self._frozen_digest()
            if blocks:
                self.load_head(list(blocks.values())[-1].head)
            yield self

    def merged_on(self, links: Iterable[Link]) -> AbstractContextManager[dict[str, nn.Parameter]]:
        """While within, merged weights of links stand in for the model's own parameters, which it yields."""
        return parameters_on(self.modules, (link.merged or {} for link in links))

    def _leave(self) -> None:
        model = self.base.model
        if self._targets:  # else nothing was wrapped
            for name, module in list(model.named_modules()):
                if isinstance(module, BaseTunerLayer) and name in self.modules:
                    model.set_submodule(name, self.modules[name])
            if hasattr(model, "peft_config"):
                del model.peft_config
        model.requires_grad_(False)
        for name, value in self._bare_head.items():
            parameter = model.get_parameter(name)
            parameter.data.copy_(value)
            parameter.grad = None
        self._mount, self._targets, self._replaced, self._beside = None, (), {}, ()  # no trained tensor stays

    def border(self, block: int) -> int:
        """Index of a block's lowest layer, at whose input its trunk ends. For block 0, the number of layers."""
        width = self.passes.top if self.adapter is None else self.adapter.layers_per_slice
        return self.passes.top - block * width

    def _adapted(self, block: int, members: int = 1) -> Iterator[tuple[str, bool, dict[str, tuple[int, ...]]]]:
        """Yields the modules that a block adapts: full name, whether IA3 scales their input, adapter's shapes."""
        if (adapter := self.adapter) is None:
            return
        names = block_modules(self.base.model, self.base.path, adapter, block)
        inward, adapter = feedforward_modules(names, adapter), adapter_of_mean(adapter, members)
        for name in names:
            yield name, name in inward, adapter_shapes(self.modules[name], adapter, feedforward=name in inward)

    def prepare(self, block: int, tensors: StageTensors, *, merged: bool = False) -> Link:
        """A stage's tensors, ready to answer. The base is bare: DoRA looks at its weights, here and once."""
        adapter, device = self.adapter, self.base.device
        targets = list(self._adapted(block, tensors.members))
        shapes = {f"{name}/{part}": size for name, _, parts in targets for part, size in parts.items()}
        check_fit(shapes or _shapes(self._block_parameters()), tensors.block, what=f"block {block}")
        check_fit(_shapes(self.base.head_parameters()), tensors.head, what="the head")
        # Copies: as read, they lie in the memory of the whole file, and anywhere in it (see base._align).
        head = {name: tensor.to(device).clone() for name, tensor in tensors.head.items()}
        if adapter is None:
            return Link(block=block, updates={}, head=head, merged=self._whole(tensors.block))
        updates = {}
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            for name, inward, parts in targets:
                own = {part: tensors.block[f"{name}/{part}"].to(device) for part in parts}
                updates[name] = update_of(
                    self.modules[name], own, adapter_of_mean(adapter, tensors.members), feedforward=inward
                )
            folded = {name: merge(self.modules[name], update) for name, update in updates.items()} if merged else None
        return Link(block=block, updates=updates, head=head, merged=folded)

    def prepared_nbytes(self, blocks: Iterable[int]) -> tuple[int, int]:
        """Memory of some blocks' links in bytes: of their merged weights, and of these and all else (`Link.nbytes`)."""
        head = sum(value.numel() for value in self.base.head_parameters().values())
        values = merged = 0
        for block in blocks:
            values += head
            for name, _, parts in self._adapted(block):
                linear: Any = self.modules[name]
                values += sum(math.prod(shape) for shape in parts.values())
                has_shift = "lora_magnitude_vector.weight" in parts and linear.bias is not None
                values += linear.out_features * has_shift
                merged += sum(parameter.nbytes for parameter in linear.parameters())
        return merged, 2 * values * torch.float32.itemsize + merged

    def _whole(self, values: Mapping[str, Tensor]) -> dict[str, Parameters]:
        """Parameters of these values for every module that has them, also where modules share one."""
        copies = {
            id(own): nn.Parameter(values[name].detach().to(own.device, copy=True), requires_grad=False)
            for name, own in self._block_parameters().items()
        }
        return {
            path: {name: copies[id(own)] for name, own in module._parameters.items() if id(own) in copies}
            for path, module in self.modules.items()
        }

    def add_block(self, block: int) -> None:
        """Put a block on: adapters at PEFT's initial values, drawn from the global generator; or the base's values."""
        model, adapter = self.base.model, self.adapter
        if self._mount is None or self._targets or (adapter is None and self._replaced):
            raise IsolationError(f"block {block} cannot be added: another block is on, and one is trained at a time")
        if adapter is None:
            copies = self._whole(self._block_parameters())
            self._replaced = self._mount.enter_context(parameters_on(self.modules, [copies]))
            return
        self._targets = block_modules(model, self.base.path, adapter, block)
        inject_adapter_in_model(peft_config(adapter, self._targets), model, adapter_name=_ADAPTER)
        wrapped = {name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}
        if wrapped != set(self._targets):
            stray = sorted(wrapped ^ set(self._targets))
            raise IsolationError(f"PEFT adapts other modules than those of block {block}: {listed(stray, most=3)}")
        for name in self._targets:
            module = model.get_submodule(name).eval()  # a new adapter starts in training mode, with its dropout on
            if isinstance(module, Linear) and _ADAPTER not in module.lora_variant:  # IA3 and DoRA stay PEFT's
                module.lora_variant[_ADAPTER] = OneProduct
                module.cast_input_dtype_enabled = False
        for parameter in self._block_parameters().values():
            parameter.data = parameter.data.float()  # PEFT gives it the type of the module that it is on

    def load_block(self, block: int, tensors: Mapping[str, Tensor]) -> None:
        copy_exactly(self._block_parameters(), tensors, what=f"block {block}")

    def load_head(self, tensors: Mapping[str, Tensor]) -> None:
        copy_exactly(self.base.head_parameters(), tensors, what="the head")

    def reset_head(self, *, seed: int) -> None:
        """Draw the head anew, as transformers does: weights normal with its initializer_range, biases 0, norms 1."""
        generator = torch.Generator().manual_seed(seed)
        config: Any = self.base.model.config
        deviation = float(getattr(config, "initializer_range", 0.02))
        for name, parameter in self.base.head_parameters().items():
            path, _, leaf = name.rpartition(".")
            module = self.base.model.get_submodule(path)
            if leaf == "bias":
                parameter.data.zero_()
            elif isinstance(module, nn.LayerNorm):
                parameter.data.fill_(1.0)
            elif isinstance(module, nn.Linear):
                drawn = torch.normal(0.0, deviation, parameter.shape, generator=generator, dtype=torch.float32)
                parameter.data.copy_(drawn)
            else:
                kind = type(module).__name__
                raise unfit(f"base_model: the head's {path} is a {kind}, which s3t cannot initialise")

    def thaw(self) -> list[nn.Parameter]:
        """Make the block that was added and the head trainable, with an adapter's own dropout; their parameters."""
        model = self.base.model.requires_grad_(False)
        own = [*self._block_parameters().values(), *self.base.head_parameters().values()]
        if self.adapter is None:
            own = list(model.parameters())  # the same, in the model's order
        for parameter in own:
            parameter.requires_grad_(True)
        for name in self._targets:
            model.get_submodule(name).train()
            model.get_submodule(name).get_submodule("base_layer").eval()
        return own

    def own_tensors(self) -> StageTensors:
        """Copies of the block that was added and the head, on the CPU."""
        return StageTensors(block=_copied(self._block_parameters()), head=_copied(self.base.head_parameters()))

    def check_isolation(self) -> None:
        """Compare all that is not the stage's own, byte for byte, with what it was."""
        if base_digest(self.base, replaced=self._replaced) != self._pristine:
            raise IsolationError(
                "a tensor of the base model changed; nothing is stored. An adapter that writes to the base model, or a "
                "buffer that follows the data, does this"
            )
        if self._frozen_digest() != self._digest:
            raise IsolationError(
                "a merged weight or the update of a block that was trained before changed; nothing is stored"
            )

    def _frozen_digest(self) -> str:
        digest = hashlib.sha256()
        merged = (self.base.model.get_parameter(name) for name in self._frozen)
        for tensor in (*merged, *self._beside):
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _block_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters of the block that was added, named as in its artifact."""
        model, head = self.base.model, set(self.base.head)
        if self.adapter is None:
            return {name: value for name, value in model.named_parameters() if name not in head}
        return {
            f"{target}/{name.replace(f'.{_ADAPTER}', '')}": parameter
            for target in self._targets
            for name, parameter in model.get_submodule(target).named_parameters()
            if not name.startswith("base_layer.")
        }


def _shapes(parameters: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in parameters.items()}


def _copied(parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in parameters.items()}


class OneProduct(LoraVariant):  # type: ignore[misc, unused-ignore]
    """LoRA as one product: the sum y + s (x A^T) B^T.

    PEFT's own forward pass computes the update, scales it and adds it: three tensors of the module's whole output.
    Under autocast it also converts the module's input to float32, which the next product converts back. The product
    here differs in the last bits alone. PEFT's extension point for other forward passes is used.
    """

    @staticmethod
    def forward(module: Any, active_adapter: str, x: Tensor, result: Tensor, **_: Any) -> Tensor:
        inner = module.lora_A[active_adapter](module.lora_dropout[active_adapter](x))
        up = module.lora_B[active_adapter].weight
        rows, updates = result.reshape(-1, result.shape[-1]), inner.reshape(-1, inner.shape[-1])
        summed = torch.addmm(rows, updates, up.t(), alpha=module.scaling[active_adapter])
        return summed.view(result.shape)


_ADAPTER = "s3t"
"""PEFT's name of the block that is trained."""


def peft_config(adapter: Adapter, targets: Sequence[str]) -> PeftConfig:
    """PEFT's configuration of a block on the linear modules of these full names."""
    if adapter.kind == "ia3":
        return IA3Config(target_modules=list(targets), feedforward_modules=feedforward_modules(targets, adapter))
    return LoraConfig(
        r=adapter.rank,
        lora_alpha=adapter.alpha,  # type: ignore[arg-type, unused-ignore]
        lora_dropout=adapter.dropout,
        use_rslora=adapter.use_rslora,
        use_dora=adapter.use_dora,
        init_lora_weights=adapter.init_lora_weights,
        target_modules=list(targets),
        bias="none",
    )
