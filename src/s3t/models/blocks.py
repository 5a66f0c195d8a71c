"""Blocks on a base model: trained ones merged into its weights, and one that PEFT puts on to be trained. Where
weights cannot take them in, or shall not, trained blocks are computed beside them.

Every mount starts from the bare base model and takes every tensor of every block, so that no block keeps its initial
values. Unmounting restores the base's own modules and parameters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from peft import IA3Config, LoraConfig, PeftConfig, inject_adapter_in_model
from peft.tuners.lora import Linear
from peft.tuners.lora.layer import LoraVariant
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from s3t.errors import IsolationError, listed
from s3t.models.base import Base, base_digest, reset_head
from s3t.models.layers import block_layers, block_modules, feedforward_modules
from s3t.models.links import Link, prepare
from s3t.models.merged import merged_on
from s3t.models.model import BlockTensors, Mounting
from s3t.models.passes import Passes
from s3t.models.quantized import QuantizedLinear
from s3t.models.tensors import StageTensors, copied, copy_exactly
from s3t.models.updates import updates_on
from s3t.recipe import Adapter


class _OneProduct(LoraVariant):  # type: ignore[misc, unused-ignore]
    """LoRA as `training.fused_lora` computes it: the sum y + s (x A^T) B^T in one product.

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


def fuse(modules: Iterable[nn.Module]) -> None:
    """Have every adapter of these modules computed in one product, where it is plain LoRA of a linear module.

    Others (IA3, DoRA, LoRA of a convolution) stay as PEFT computes them.
    """
    for module in modules:
        if not isinstance(module, Linear):
            continue
        plain = [name for name, up in module.lora_B.items() if name not in module.lora_variant and up.bias is None]
        for name in plain:
            module.lora_variant[name] = _OneProduct
        if plain:
            module.cast_input_dtype_enabled = False


class MountedModel:
    """A base model with trained blocks merged into its weights, and at most one block of PEFT's on it.

    Made by `BlockModel.mounted`.
    """

    def __init__(
        self,
        base: Base,
        adapter: Adapter,
        *,
        pristine: str,
        aside: Mapping[str, nn.Parameter],
        beside: Iterable[Tensor] = (),
    ) -> None:
        """Describe what is mounted."""
        self.base = base
        self._adapter = adapter
        self._pristine = pristine
        self._aside = aside
        self._beside = tuple(beside)
        self._merged = self._merged_digest()
        self._targets: tuple[str, ...] = ()

    @property
    def has_block(self) -> bool:
        """True once PEFT was asked to put a block on."""
        return bool(self._targets)

    def add_block(self, block: int) -> None:
        """Wrap the modules of a block, at PEFT's initial values drawn from the global generator."""
        model = self.base.model
        if self.has_block:
            raise IsolationError(f"block {block} cannot be added: another block is on, and one is trained at a time")
        self._targets = block_modules(model, self.base.layers, self._adapter, block)
        inject_adapter_in_model(peft_config(self._adapter, self._targets), model, adapter_name=_ADAPTER)
        wrapped = {name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}
        if wrapped != set(self._targets):
            stray = sorted(wrapped ^ set(self._targets))
            raise IsolationError(f"PEFT adapts other modules than those of block {block}: {listed(stray, most=3)}")
        for name in self._targets:
            model.get_submodule(name).eval()  # a new adapter starts in training mode, with its dropout on
        for _, parameter in self._block_parameters():
            parameter.data = parameter.data.float()  # PEFT gives it the type of the module that it is on

    def load_block(self, block: int, tensors: Mapping[str, Tensor]) -> None:
        """Give the block that was added its trained values."""
        copy_exactly(dict(self._block_parameters()), tensors, what=f"block {block}")

    def load_head(self, tensors: Mapping[str, Tensor]) -> None:
        """Give the head its trained values."""
        copy_exactly(self.base.head_parameters(), tensors, what="the head")

    def thaw(self) -> list[nn.Parameter]:
        """Make the block that was added and the head trainable, and nothing else; their parameters."""
        self.base.model.requires_grad_(False)
        own = [*dict(self._block_parameters()).values(), *self.base.head_parameters().values()]
        for parameter in own:
            parameter.requires_grad_(True)
        for name in self._targets:
            self.base.model.get_submodule(name).train()  # the adapter's own dropout; the base stays in eval mode
            self.base.model.get_submodule(name).get_submodule("base_layer").eval()
        return own

    def fuse(self) -> None:
        """Have the block that was added computed with fewer passes over memory."""
        fuse(self.base.model.get_submodule(name) for name in self._targets)

    def own_tensors(self) -> StageTensors:
        """Copies of the block that was added and the head, on the CPU."""
        return StageTensors(
            block={name: copied(value) for name, value in self._block_parameters()},
            head={name: copied(value) for name, value in self.base.head_parameters().items()},
        )

    def check_isolation(self) -> None:
        """See that the base model and merged weights are, byte for byte, what they were."""
        if base_digest(self.base, aside=self._aside) != self._pristine:
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
        merged = (self.base.model.get_parameter(name) for name in self._aside)
        for tensor in (*merged, *self._beside):
            digest.update(copied(tensor).view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _block_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for target in self._targets:
            for name, parameter in self.base.model.get_submodule(target).named_parameters():
                parts = name.split(".")
                if parts[0] != "base_layer":
                    yield f"{target}/{'.'.join(part for part in parts if part != _ADAPTER)}", parameter


class BlockModel:
    """A base model that blocks are mounted on, one chain at a time."""

    def __init__(self, base: Base, adapter: Adapter) -> None:
        self.base = base
        self.passes = Passes(base)
        self.adapter = adapter
        self.modules: Mapping[str, nn.Module] = dict(base.model.named_modules())
        """The bare model's modules by full name; listed once, for a walk would be a part of a single answer's time."""
        self._pristine = base_digest(base)
        self._bare_head = {name: value.detach().clone() for name, value in base.head_parameters().items()}
        self._mounting = Mounting()

    @contextmanager
    def mounted(self, blocks: BlockTensors) -> Iterator[MountedModel]:
        """`Model.mounted` with blocks merged into copies of the weights, so they cost what bare layers cost; or beside
        the weights, where the base does not take blocks."""
        model = self.base.model
        with self._mounting.begun(), ExitStack() as stack:
            aside: Mapping[str, nn.Parameter] = {}
            beside: Sequence[Tensor] = ()
            if not self.base.takes_blocks:
                updates = (link.updates for link in self._links(blocks))
                beside = stack.enter_context(updates_on(self.modules, updates, dtype=self._dtype))
            else:
                aside = stack.enter_context(
                    merged_on(self.modules, (link.merged or {} for link in self._links(blocks)))
                )
            mount = MountedModel(self.base, self.adapter, pristine=self._pristine, aside=aside, beside=beside)
            try:
                if blocks:
                    mount.load_head(list(blocks.values())[-1].head)
                yield mount
            finally:
                if mount.has_block:  # else nothing was wrapped
                    for name, module in list(model.named_modules()):
                        if isinstance(module, BaseTunerLayer) and name in self.modules:
                            model.set_submodule(name, self.modules[name])
                    if hasattr(model, "peft_config"):
                        del model.peft_config
                    model.requires_grad_(False)
                for name, value in self._bare_head.items():
                    model.get_parameter(name).data.copy_(value)

    def _links(self, blocks: BlockTensors) -> Iterator[Link]:
        """Each block, with merged parameters in the base's own types where it can have some."""
        for block, tensors in blocks.items():
            yield prepare(self.base, self.adapter, block, tensors, merged=self.base.takes_blocks)

    @property
    def _dtype(self) -> torch.dtype:
        """Type of the layers' products, in which blocks are computed beside the weights."""
        layers = self.base.model.get_submodule(self.base.layers.path)
        linears: Iterator[Any] = (module for module in layers.modules() if isinstance(module, nn.Linear))
        return next(
            module.compute_dtype if isinstance(module, QuantizedLinear) else module.weight.dtype for module in linears
        )

    def border(self, block: int) -> int:
        """See `Model.border`."""
        if block == 0:
            return self.passes.top
        layers_per_slice = self.adapter.layers_per_slice
        return block_layers(block, layers=self.base.layers.count, layers_per_slice=layers_per_slice)[0]

    def reset_head(self, *, seed: int) -> None:
        """Draw the head anew; a first stage starts from it."""
        reset_head(self.base, seed=seed)


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
