"""Stages that train the model itself, without adapters: the original SISA (Bourtoule et al. 2021).

There is one block then, and it is every parameter but the head's. It is put on the base model by copying it there, and
taken off by copying the base model's own values back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from s3t.errors import IsolationError
from s3t.models.base import Base, base_digest, reset_head
from s3t.models.model import BlockTensors, Mounting
from s3t.models.passes import Passes
from s3t.models.tensors import StageTensors, copied, copy_exactly
from s3t.recipe import Adapter


class MountedWhole:
    """A base model with the parameters of a stage in place of its own. Made by `WholeModel.mounted`."""

    def __init__(self, base: Base, *, buffers: str) -> None:
        self.base = base
        self._buffers = buffers
        self._added = False

    def add_block(self, block: int) -> None:
        """Begin with the base model's own parameters."""
        if block != 1 or self._added:
            raise IsolationError(f"block {block} cannot be added: the model itself is the one block")
        self._added = True

    def load_block(self, block: int, tensors: Mapping[str, Tensor]) -> None:
        """Put a stage's parameters on the model."""
        copy_exactly(self._body(), tensors, what=f"block {block}")

    def load_head(self, tensors: Mapping[str, Tensor]) -> None:
        """Give the head its trained values."""
        copy_exactly(self.base.head_parameters(), tensors, what="the head")

    def thaw(self) -> list[nn.Parameter]:
        """Make every parameter trainable. The model stays in evaluation mode, as under adapters: no dropout."""
        self.base.model.requires_grad_(True)
        return list(self.base.model.parameters())

    def fuse(self) -> None:
        """Do nothing: there are no adapters."""

    def own_tensors(self) -> StageTensors:
        """Copies of all parameters, on the CPU."""
        return StageTensors(
            block={name: copied(value) for name, value in self._body().items()},
            head={name: copied(value) for name, value in self.base.head_parameters().items()},
        )

    def check_isolation(self) -> None:
        """See that no buffer has changed; parameters may all."""
        if base_digest(self.base, parameters=False) != self._buffers:
            raise IsolationError(
                "a buffer of the base model changed; nothing is stored. One that follows the data does this"
            )

    def _body(self) -> dict[str, nn.Parameter]:
        head = set(self.base.head)
        return {name: value for name, value in self.base.model.named_parameters() if name not in head}


class WholeModel:
    """A base model whose one block is itself."""

    def __init__(self, base: Base, _adapter: Adapter) -> None:
        self.base = base
        self.passes = Passes(base)
        self._buffers = base_digest(base, parameters=False)
        self._bare = {name: value.detach().clone() for name, value in base.model.named_parameters()}
        self._mounting = Mounting()

    @contextmanager
    def mounted(self, blocks: BlockTensors) -> Iterator[MountedWhole]:
        """The model as a stage left it, or bare. On leaving, every parameter is the base model's again."""
        with self._mounting.begun():
            try:
                mount = MountedWhole(self.base, buffers=self._buffers)
                for number, tensors in blocks.items():
                    mount.add_block(number)
                    mount.load_block(number, tensors.block)
                    mount.load_head(tensors.head)
                yield mount
            finally:
                self.base.model.requires_grad_(False)
                with torch.no_grad():
                    for name, value in self.base.model.named_parameters():
                        value.grad = None
                        value.copy_(self._bare[name])

    def border(self, block: int) -> int:
        """The block begins at the bottom; for 0, above the last layer."""
        return self.passes.top if block == 0 else 0

    def reset_head(self, *, seed: int) -> None:
        """Draw the head anew; a first stage starts from it."""
        reset_head(self.base, seed=seed)
