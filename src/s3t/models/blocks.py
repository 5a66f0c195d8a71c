"""A base model that stages train and that answers, whatever they train: blocks of adapters, or the model itself.

Trained blocks are merged into copies of the base's weights, or computed beside quantised ones; PEFT puts on the one
that is trained. Every mount starts from the bare base model and takes every tensor of every block, so that no block
keeps its initial values. Unmounting restores the base's own modules and parameters.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Self, TypeAlias

import torch
from peft import IA3Config, LoraConfig, PeftConfig, inject_adapter_in_model
from peft.tuners.lora import Linear
from peft.tuners.lora.layer import LoraVariant
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from s3t.errors import IsolationError, listed
from s3t.models.adapters import Stack, StageTensors, copied, copy_exactly, merged_on, prepare
from s3t.models.base import Base, base_digest
from s3t.models.layers import block_layers, block_modules, feedforward_modules
from s3t.models.passes import Passes
from s3t.models.quantized import QuantizedLinear
from s3t.models.source import unfit
from s3t.recipe import Adapter

BlockTensors: TypeAlias = Mapping[int, StageTensors]
"""Blocks by number, 1 at the top, in the order in which stages trained them; each with what its stage left."""


class Model(ABC):
    """A base model that blocks are mounted on: those of a chain of stages, and at most one that is added to be trained.

    Tensors of an artifact that do not fit raise IntegrityError. A change of what is not the stage's own raises
    IsolationError.
    """

    def __init__(self, base: Base) -> None:
        self.base = base
        self.passes = Passes(base)
        self._is_mounted = False

    @contextmanager
    def mounted(self, blocks: BlockTensors) -> Iterator[Self]:
        """The model with some blocks on, and the head of the stage that trained the last of them.

        Without blocks: the base model, its head as it is. On leaving, all tensors are as loaded again (no trained head
        stays behind), and nothing is trainable.
        """
        if self._is_mounted:
            raise IsolationError("this model has blocks on it already; leave the first `mounted` block first")
        self._is_mounted = True
        try:
            with self._with(blocks):
                yield self
        finally:
            self._is_mounted = False

    @abstractmethod
    def _with(self, blocks: BlockTensors) -> AbstractContextManager[None]: ...

    @abstractmethod
    def border(self, block: int) -> int:
        """Index of a block's lowest layer, at whose input its trunk ends. For block 0, the number of layers."""

    @abstractmethod
    def add_block(self, block: int) -> None:
        """Put a block on, 1 for the top one, at initial values."""

    @abstractmethod
    def thaw(self) -> Sequence[nn.Parameter]:
        """Make the block that was added and the head trainable, and nothing else; their parameters."""

    @abstractmethod
    def check_isolation(self) -> None:
        """Compare all that is not the stage's own, byte for byte, with what it was."""

    @abstractmethod
    def _block_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters of the block that was added, named as in its artifact."""

    def load_block(self, block: int, tensors: Mapping[str, Tensor]) -> None:
        copy_exactly(self._block_parameters(), tensors, what=f"block {block}")

    def load_head(self, tensors: Mapping[str, Tensor]) -> None:
        copy_exactly(self.base.head_parameters(), tensors, what="the head")

    def reset_head(self, *, seed: int) -> None:
        """Draw the head anew, as transformers does: weights normal with its initializer_range, biases 0, norms 1."""
        generator = torch.Generator().manual_seed(seed)
        config: Any = self.base.model.config
        deviation = float(getattr(config, "initializer_range", 0.02))
        by_module: dict[str, list[str]] = {}
        for name in self.base.head:
            path, _, leaf = name.rpartition(".")
            by_module.setdefault(path, []).append(leaf)
        for path, leaves in by_module.items():
            module = self.base.model.get_submodule(path)
            for leaf in leaves:
                parameter = module.get_parameter(leaf)
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

    def own_tensors(self) -> StageTensors:
        """Copies of the block that was added and the head, on the CPU."""
        return StageTensors(
            block={name: copied(value) for name, value in self._block_parameters().items()},
            head={name: copied(value) for name, value in self.base.head_parameters().items()},
        )


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


class BlockModel(Model):
    """A base model whose blocks are adapters on some of its layers."""

    def __init__(self, base: Base, adapter: Adapter) -> None:
        super().__init__(base)
        self.adapter = adapter
        self.modules: Mapping[str, nn.Module] = dict(base.model.named_modules())
        """The bare model's modules by full name; listed once, for a walk would be a part of a single answer's time."""
        self._pristine = base_digest(base)
        self._bare_head = {name: value.detach().clone() for name, value in base.head_parameters().items()}
        self._targets: tuple[str, ...] = ()
        """Modules that PEFT was asked to adapt."""
        self._replaced: Mapping[str, nn.Parameter] = {}
        """The base's own parameters in whose place merged ones are."""
        self._beside: Sequence[Tensor] = ()
        """Updates that are computed beside the weights."""

    @contextmanager
    def _with(self, blocks: BlockTensors) -> Iterator[None]:
        model, quantized = self.base.model, self.base.quantized
        links = (
            prepare(self.base, self.adapter, block, tensors, merged=not quantized) for block, tensors in blocks.items()
        )
        with ExitStack() as stack:
            if quantized and blocks:
                layers = (module for module in self.modules.values() if isinstance(module, QuantizedLinear))
                chain = list(links)
                together = Stack(self.base, [chain], dtype=next(layers).compute_dtype)
                self._beside = together.tensors()
                for link in chain:
                    stack.enter_context(together.on(link.block, slice(0, 1), groups=1))
            else:
                self._replaced = stack.enter_context(merged_on(self.modules, (link.merged or {} for link in links)))
            self._merged = self._merged_digest()
            try:
                if blocks:
                    self.load_head(list(blocks.values())[-1].head)
                yield
            finally:
                if self._targets:  # else nothing was wrapped
                    for name, module in list(model.named_modules()):
                        if isinstance(module, BaseTunerLayer) and name in self.modules:
                            model.set_submodule(name, self.modules[name])
                    if hasattr(model, "peft_config"):
                        del model.peft_config
                    model.requires_grad_(False)
                for name, value in self._bare_head.items():
                    model.get_parameter(name).data.copy_(value)
                self._targets, self._replaced, self._beside = (), {}, ()  # no trained tensor stays

    def border(self, block: int) -> int:
        if block == 0:
            return self.passes.top
        width = self.adapter.layers_per_slice
        return block_layers(block, layers=self.base.layers.count, layers_per_slice=width)[0]

    def add_block(self, block: int) -> None:
        """Wrap the modules of a block, at PEFT's initial values drawn from the global generator."""
        model = self.base.model
        if self._targets:
            raise IsolationError(f"block {block} cannot be added: another block is on, and one is trained at a time")
        self._targets = block_modules(model, self.base.layers, self.adapter, block)
        inject_adapter_in_model(peft_config(self.adapter, self._targets), model, adapter_name=_ADAPTER)
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

    def thaw(self) -> list[nn.Parameter]:
        self.base.model.requires_grad_(False)
        own = [*self._block_parameters().values(), *self.base.head_parameters().values()]
        for parameter in own:
            parameter.requires_grad_(True)
        for name in self._targets:
            self.base.model.get_submodule(name).train()  # the adapter's own dropout; the base stays in eval mode
            self.base.model.get_submodule(name).get_submodule("base_layer").eval()
        return own

    def check_isolation(self) -> None:
        if base_digest(self.base, replaced=self._replaced) != self._pristine:
            raise IsolationError(
                "a tensor of the base model changed; nothing is stored. An adapter that writes to the base model, or a "
                "buffer that follows the data, does this"
            )
        if self._merged_digest() != self._merged:
            raise IsolationError(
                "a merged weight or the update of a block that was trained before changed; nothing is stored"
            )

    def _merged_digest(self) -> str:
        digest = hashlib.sha256()
        merged = (self.base.model.get_parameter(name) for name in self._replaced)
        for tensor in (*merged, *self._beside):
            digest.update(copied(tensor).view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _block_parameters(self) -> dict[str, nn.Parameter]:
        return {
            f"{target}/{name.replace(f'.{_ADAPTER}', '')}": parameter
            for target in self._targets
            for name, parameter in self.base.model.get_submodule(target).named_parameters()
            if not name.startswith("base_layer.")
        }


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


class WholeModel(Model):
    """A base model whose one block is every parameter but the head's (the original SISA; Bourtoule et al. 2021).

    It is put on the base model by copying it there, and taken off by copying the base model's own values back.
    """

    def __init__(self, base: Base, _adapter: Adapter) -> None:
        super().__init__(base)
        self._buffers = base_digest(base, parameters=False)
        self._bare = {name: value.detach().clone() for name, value in base.model.named_parameters()}
        self._has_block = False

    @contextmanager
    def _with(self, blocks: BlockTensors) -> Iterator[None]:
        self._has_block = False
        try:
            for number, tensors in blocks.items():
                self.add_block(number)
                self.load_block(number, tensors.block)
                self.load_head(tensors.head)
            yield
        finally:
            self.base.model.requires_grad_(False)
            with torch.no_grad():
                for name, value in self.base.model.named_parameters():
                    value.grad = None
                    value.copy_(self._bare[name])

    def border(self, block: int) -> int:
        """The block begins at the bottom; for 0, above the last layer."""
        return self.passes.top if block == 0 else 0

    def add_block(self, block: int) -> None:
        """Begin with the base model's own parameters."""
        if block != 1 or self._has_block:
            raise IsolationError(f"block {block} cannot be added: the model itself is the one block")
        self._has_block = True

    def thaw(self) -> list[nn.Parameter]:
        """Make every parameter trainable. The model stays in evaluation mode, as under adapters: no dropout."""
        self.base.model.requires_grad_(True)
        return list(self.base.model.parameters())

    def check_isolation(self) -> None:
        """See that no buffer has changed; parameters may all."""
        if base_digest(self.base, parameters=False) != self._buffers:
            raise IsolationError(
                "a buffer of the base model changed; nothing is stored. One that follows the data does this"
            )

    def _block_parameters(self) -> dict[str, nn.Parameter]:
        head = set(self.base.head)
        return {name: value for name, value in self.base.model.named_parameters() if name not in head}
