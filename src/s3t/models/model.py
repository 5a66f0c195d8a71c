"""A base model that stages are trained on and answer with, whatever they train: adapters, or the model itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias

from torch import Tensor, nn

from s3t.errors import IsolationError
from s3t.models.base import Base
from s3t.models.passes import Passes
from s3t.models.tensors import StageTensors

BlockTensors: TypeAlias = Mapping[int, StageTensors]
"""Blocks by number, 1 at the top, in the order in which stages trained them; each with what its stage left."""


class Mounted(Protocol):
    """A base model with the blocks of a chain of stages on it, and at most one that is added to be trained.

    Tensors of an artifact that do not fit raise IntegrityError. A change of what is not the stage's own raises
    IsolationError.
    """

    @property
    def base(self) -> Base: ...

    def add_block(self, block: int) -> None:
        """Put a block on, 1 for the top one, at initial values."""

    def load_block(self, block: int, tensors: Mapping[str, Tensor]) -> None:
        """Give a block its trained values."""

    def load_head(self, tensors: Mapping[str, Tensor]) -> None:
        """Give the head its trained values."""

    def thaw(self) -> Sequence[nn.Parameter]:
        """Make the block that was added and the head trainable, and nothing else; their parameters."""

    def fuse(self) -> None:
        """Compute the block that was added with fewer passes over memory."""

    def own_tensors(self) -> StageTensors:
        """Copies of the block that was added and the head, on the CPU."""

    def check_isolation(self) -> None:
        """Compare all that is not the stage's own, byte for byte, with what it was."""


class Model(Protocol):
    """A base model that blocks are mounted on, one chain at a time."""

    @property
    def base(self) -> Base: ...

    @property
    def passes(self) -> Passes: ...

    def mounted(self, blocks: BlockTensors) -> AbstractContextManager[Mounted]:
        """The model with some blocks on, and the head of the stage that trained the last of them.

        Without blocks: the base model, its head as it is. On leaving, all tensors are as loaded again (no trained head
        stays behind), and nothing is trainable.
        """

    def border(self, block: int) -> int:
        """Index of a block's lowest layer, at whose input its trunk ends. For block 0, the number of layers."""

    def reset_head(self, *, seed: int) -> None:
        """Draw the head anew; a first stage starts from it."""


class Mounting:
    """One mount of a model at a time."""

    def __init__(self) -> None:
        self._on = False

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Mark the model as mounted within the context."""
        if self._on:
            raise IsolationError("this model has blocks on it already; leave the first `mounted` block first")
        self._on = True
        try:
            yield
        finally:
            self._on = False
