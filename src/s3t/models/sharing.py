"""Computations that members of one base model can share, found by trial: architectures do not declare it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from s3t.models.base import Base
from s3t.models.passes import Batch, run_model


@dataclass(frozen=True, kw_only=True)
class Sharing:
    """Computations that members can share.

    Attributes:
        rows: a pass. In every linear module of the layers, rows of the batch come first, so that each row's member is
            known. Not so where something that all rows have in common goes through an adapted module (the relative
            positions of DeBERTa).
        trunk: the layers below their blocks. Not so where a part of the head lies below the layers, because the
            checkpoint lacks it.
        head: one pass through it. Its parameters are those of linear modules above the layers that get rows first.
    """

    rows: bool
    trunk: bool
    head: bool


def find_sharing(base: Base, one: Batch) -> Sharing:
    """Find what members of a model can share; it depends on the architecture and the checkpoint alone.

    The model has no blocks on; the batch is of one record, whose content does not matter.
    """
    # Twice, for the number of rows may also be that of something else.
    tries = [_tried(base, tiled(one, count), count) for count in (2, 3)]
    return Sharing(
        rows=all(found.rows for found in tries),
        trunk=all(found.trunk for found in tries),
        head=all(found.head for found in tries),
    )


def head_owners(base: Base) -> tuple[str, ...]:
    """Full names of the modules that the head's parameters belong to."""
    return tuple(dict.fromkeys(name.rpartition(".")[0] for name in base.head))


def tiled(batch: Batch, times: int) -> dict[str, Tensor]:
    """A batch whose rows come several times, all of them and then all of them again."""
    if times == 1:
        return dict(batch)
    return {name: tensor.repeat(times, *[1] * (tensor.dim() - 1)) for name, tensor in batch.items()}


def _tried(base: Base, batch: Batch, count: int) -> Sharing:
    layers = list(base.model.get_submodule(base.layers.path).children())
    owners = {name: base.model.get_submodule(name) for name in head_owners(base)}
    rows_first: list[bool] = []
    head_ran: list[str] = []
    head_rows_first: list[bool] = []
    trunk: list[bool] = []

    def note(_module: nn.Module, args: tuple[Any, ...]) -> None:
        rows_first.append(bool(args) and args[0].dim() > 2 and args[0].shape[0] == count)

    def note_head(name: str, args: tuple[Any, ...]) -> None:
        head_ran.append(name)
        head_rows_first.append(bool(args) and args[0].dim() > 1 and args[0].shape[0] == count)

    def end(*_: Any) -> None:
        trunk.append(not head_ran)

    handles = [
        module.register_forward_pre_hook(note)
        for layer in layers
        for module in layer.modules()
        if isinstance(module, nn.Linear)
    ]
    handles += [
        owner.register_forward_pre_hook(lambda _module, args, name=name: note_head(name, args))
        for name, owner in owners.items()
    ]
    handles.append(layers[-1].register_forward_hook(end))
    try:
        with torch.no_grad():
            run_model(base.model, batch)
    finally:
        for handle in handles:
            handle.remove()
    own = {f"{name}.{part}" for name, owner in owners.items() for part, _ in owner.named_parameters(recurse=False)}
    linear = all(type(owner) is nn.Linear for owner in owners.values())
    once = sorted(head_ran) == sorted(owners)
    head = all(trunk) and linear and once and all(head_rows_first) and own == set(base.head)
    return Sharing(rows=all(rows_first), trunk=all(trunk), head=head)
