"""Blocks on a base model: one named PEFT adapter per stage, put on and taken off without a trace.

A mounted model has the adapters of a chain of stages switched on and nothing else changed. Every mount starts from the
bare base model. It loads every tensor of every block, so that no block keeps its initial values, and checks that
exactly the planned modules are wrapped. Unmounting restores the base's own modules.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import IA3Config, LoraConfig, PeftConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn

from s3t.errors import IntegrityError, IsolationError
from s3t.models.base import Base, base_digest, reset_head
from s3t.models.fused import fuse
from s3t.models.layers import block_layers, block_modules, feedforward_modules
from s3t.models.model import Blocks, Mounting
from s3t.models.passes import Passes
from s3t.models.tensors import StageTensors
from s3t.recipe import Adapter


class MountedModel:
    """A base model with the blocks of a chain of stages on it. Made by `BlockModel.mounted`."""

    def __init__(self, base: Base, adapter: Adapter, *, pristine: str) -> None:
        self.base = base
        self._adapter = adapter
        self._pristine = pristine
        self._targets: dict[int, tuple[str, ...]] = {}
        self._own = 0
        self.bare_modules: dict[str, nn.Module] = {}
        """The base's own modules by full name, from the first block on; none where no block was put on."""
        self._aside: dict[str, nn.Module] = {}
        """The base's own modules by full name, where merged copies stand in for them."""
        self._merged = self._merged_digest()

    def add_block(self, block: int) -> None:
        """Wrap the modules of a block, at PEFT's initial values drawn from the global generator.

        Raises:
            IsolationError: PEFT wrapped other modules than the block's.
        """
        model = self.base.model
        self.bare_modules = self.bare_modules or dict(model.named_modules())
        targets = block_modules(model, self.base.layers, self._adapter, block)
        if hasattr(model, "peft_config"):
            del model.peft_config  # PEFT's note of the block before; with it, PEFT would warn of a second adapter
        inject_adapter_in_model(_peft_config(self._adapter, targets), model, adapter_name=_adapter_name(block))
        self._targets[block] = targets
        self._own = block
        wrapped = {name for name, module in model.named_modules() if isinstance(module, BaseTunerLayer)}
        planned = {name for names in self._targets.values() for name in names} - self._aside.keys()
        if wrapped != planned:
            stray = sorted(wrapped ^ planned)
            raise IsolationError(f"block {block} should wrap other modules than PEFT did: {', '.join(stray)}")
        active = [_adapter_name(number) for number in self._targets]
        for name in planned:
            module = model.get_submodule(name)
            module.set_adapter(active)  # type: ignore[operator]
            module.eval()  # a new adapter starts in training mode, and its dropout would stay on in prediction
        for _, parameter in self._block_parameters(block):
            parameter.data = parameter.data.float()  # PEFT gives it the type of the module that it is on

    def load_block(self, block: int, tensors: Mapping[str, Tensor]) -> None:
        """Give a block its trained values."""
        copy_exactly(dict(self._block_parameters(block)), tensors, what=f"block {block}")

    def load_head(self, tensors: Mapping[str, Tensor]) -> None:
        """Give the head its trained values."""
        copy_exactly(self.base.head_parameters(), tensors, what="the head")

    def thaw(self) -> list[nn.Parameter]:
        """Make the block that was added last and the head trainable, and nothing else; their parameters."""
        self.base.model.requires_grad_(False)
        own = [*dict(self._block_parameters(self._own)).values(), *self.base.head_parameters().values()]
        for parameter in own:
            parameter.requires_grad_(True)
        for name in self._targets[self._own]:
            self.base.model.get_submodule(name).train()  # the adapter's own dropout; the base stays in eval mode
            self.base.model.get_submodule(name).get_submodule("base_layer").eval()
        return own

    def merge(self, blocks: Blocks) -> None:
        """Fold the blocks that are on into copies of their modules, which then cost what the base's own cost.

        Args:
            blocks: what they should be.

        Raises:
            IsolationError: a block is not what it should be.
        """
        for block, parent in blocks.items():
            held = dict(self._block_parameters(block))
            if held.keys() != parent.block.keys() or not all(
                _same_bytes(held[name], tensor) for name, tensor in parent.block.items()
            ):
                raise IsolationError(f"block {block}, which was trained before, is not what it was; nothing is stored")
        device = self.base.model.get_parameter(self.base.head[0]).device
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            for name in (name for names in self._targets.values() for name in names):
                module: Any = self.base.model.get_submodule(name)
                self._aside[name] = module.base_layer
                module.base_layer = copy.deepcopy(module.base_layer)
                module.merge()
                self.base.model.set_submodule(name, module.base_layer)
        self._merged = self._merged_digest()

    def fuse(self) -> None:
        """Have the blocks that are on computed with fewer passes over memory; see `s3t.models.fused`."""
        fuse(self.base.model.get_submodule(name) for names in self._targets.values() for name in names)

    def own_tensors(self) -> StageTensors:
        """Copies of the block that was added last and the head, on the CPU."""
        return StageTensors(
            block={name: copied(value) for name, value in self._block_parameters(self._own)},
            head={name: copied(value) for name, value in self.base.head_parameters().items()},
        )

    def check_isolation(self) -> None:
        """See that the base model and merged blocks are, byte for byte, what they were.

        Raises:
            IsolationError: a base tensor, a buffer, or a merged weight has changed.
        """
        if base_digest(self.base, aside=self._aside) != self._pristine:
            raise IsolationError(
                "a tensor of the base model changed; nothing is stored. An adapter that writes to the base model, or a "
                "buffer that follows the data, does this"
            )
        if self._merged_digest() != self._merged:
            raise IsolationError("a weight with a merged block, which was trained before, changed; nothing is stored")

    def _merged_digest(self) -> str:
        digest = hashlib.sha256()
        for name in self._aside:
            for parameter in self.base.model.get_submodule(name).parameters():
                digest.update(copied(parameter).view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def _block_parameters(self, block: int) -> Iterator[tuple[str, nn.Parameter]]:
        adapter = _adapter_name(block)
        for target in self._targets[block]:
            for name, parameter in self.base.model.get_submodule(target).named_parameters():
                parts = name.split(".")
                if parts[0] != "base_layer":
                    yield f"{target}/{'.'.join(part for part in parts if part != adapter)}", parameter


class BlockModel:
    """A base model that blocks are mounted on, one chain at a time."""

    def __init__(self, base: Base, adapter: Adapter) -> None:
        self.base = base
        self.passes = Passes(base)
        self.adapter = adapter
        self._pristine = base_digest(base)
        self._bare_head = {name: value.detach().clone() for name, value in base.head_parameters().items()}
        self._mounting = Mounting()

    @contextmanager
    def mounted(self, blocks: Blocks) -> Iterator[MountedModel]:
        """As `Model.mounted`. On leaving, every wrapped module is the base's own again."""
        model = self.base.model
        with self._mounting.begun():
            mount = MountedModel(self.base, self.adapter, pristine=self._pristine)
            try:
                with torch.random.fork_rng(devices=[]):  # the initial values are overwritten; leave no trace of drawing
                    for number, tensors in blocks.items():
                        mount.add_block(number)
                        mount.load_block(number, tensors.block)
                    if blocks:
                        mount.load_head(list(blocks.values())[-1].head)
                yield mount
            finally:
                if mount.bare_modules:  # else nothing was wrapped, and a walk would be a part of a single answer's time
                    for name, module in list(model.named_modules()):
                        if isinstance(module, BaseTunerLayer) or module is not mount.bare_modules.get(name, module):
                            model.set_submodule(name, mount.bare_modules[name])
                    if hasattr(model, "peft_config"):
                        del model.peft_config
                    model.requires_grad_(False)
                for name, value in self._bare_head.items():
                    model.get_parameter(name).data.copy_(value)

    def border(self, block: int) -> int:
        """As `Model.border`."""
        if block == 0:
            return self.passes.top
        layers_per_slice = self.adapter.layers_per_slice
        return block_layers(block, layers=self.base.layers.count, layers_per_slice=layers_per_slice)[0]

    def reset_head(self, *, seed: int) -> None:
        """Draw the head anew; a first stage starts from it."""
        reset_head(self.base, seed=seed)


def _adapter_name(block: int) -> str:
    return f"block{block}"


def _peft_config(adapter: Adapter, targets: Sequence[str]) -> PeftConfig:
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


def check_fit(shapes: Mapping[str, torch.Size], tensors: Mapping[str, Tensor], *, what: str) -> None:
    """Check that an artifact's tensors have exactly the model's names and shapes.

    Raises:
        IntegrityError: a name or a shape differs.
    """
    wrong = sorted(set(shapes) ^ set(tensors)) or [
        name for name, shape in shapes.items() if shape != tensors[name].shape
    ]
    if wrong:
        raise IntegrityError(
            f"{what} of an artifact does not fit the model: {', '.join(wrong[:5])}; the base model or PEFT has "
            "changed since it was trained"
        )


def copy_exactly(parameters: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor], *, what: str) -> None:
    """Give parameters the values of an artifact.

    Raises:
        IntegrityError: as `check_fit`.
    """
    check_fit({name: parameter.shape for name, parameter in parameters.items()}, tensors, what=what)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def _same_bytes(one: Tensor, other: Tensor) -> bool:
    """Not torch.equal: it takes -0.0 for 0.0, and nothing for NaN."""
    here, there = (tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other))
    return torch.equal(here, there)


def copied(parameter: nn.Parameter) -> Tensor:
    """A copy on the CPU."""
    return parameter.detach().to("cpu", copy=True).contiguous()
