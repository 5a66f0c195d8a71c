"""Several short texts in one row, each blind to the others: a pass through the layers with hardly a token of padding.

The layers' outputs differ by rounding alone (and by the draws of an adapter's dropout), if only attention mixes tokens
and positions are added below the layers. Whether that is so of a model, `assembly` tries out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Packing(NamedTuple):
    """Index maps between a batch and its packing into fewer rows. Tokens are numbered row after row in both."""

    taken: Tensor
    """Rows x width, int64: the batch's token at each position of the packing; arbitrary at empty positions."""
    found: Tensor
    """Batch x longest, int64: for each token of the batch its place in the packing. For padding, any."""
    text: Tensor
    """Rows x width, int64: number of the text at each position, from 1; 0 at empty ones."""

    @property
    def same(self) -> Tensor:
        """Rows x 1 x width x width, bool: whether two places of a row hold tokens of one text. Empty places count as a
        text of their own, for attention to nothing at all is no number."""
        return (self.text[:, :, None] == self.text[:, None, :])[:, None]

    @property
    def positions(self) -> Tensor:
        """Rows x width, int64: position of each token in its text; 0 at empty places."""
        places = torch.arange(self.text.shape[1], device=self.text.device).expand_as(self.text)
        begins = torch.ones_like(self.text, dtype=torch.bool)
        begins[:, 1:] = self.text[:, 1:] != self.text[:, :-1]
        first = torch.where(begins, places, 0).cummax(dim=1).values
        return torch.where(self.text > 0, places - first, 0)


def pack(mask: Tensor) -> Packing | None:
    """Lay the texts of a batch into as few rows as first-fit-decreasing finds.

    Args:
        mask: batch x longest; 1 where there is a token, 0 where there is padding. On the CPU.

    Returns:
        None where the batch is as it would be packed.
    """
    count, longest = mask.shape
    width = row_width(longest)
    tokens = [row.nonzero().squeeze(1).add(number * longest) for number, row in enumerate(mask)]
    rows = fitted([len(one) for one in tokens], width)
    places = len(rows) * width
    if len(rows) == count and width == longest:
        return None
    # Of what nothing looks at, indices differ all the same: gradients that fall on one place are added one by one.
    taken = (torch.arange(places) % (count * longest)).reshape(len(rows), width)
    found = torch.arange(count * longest) % places
    text = torch.zeros(len(rows), width, dtype=torch.int64)
    for index, row in enumerate(rows):
        laid = torch.cat([tokens[number] for number in row])
        taken[index, : len(laid)] = laid
        text[index, : len(laid)] = laid // longest + 1
        found[laid] = torch.arange(len(laid)) + index * width
    return Packing(taken, found.reshape(count, longest), text)


def packed_inputs(batch: Mapping[str, Tensor], packing: Packing) -> dict[str, Tensor]:
    """The inputs of a causal model for a packing. Positions that begin anew tell transformers where a text begins, and
    each text is then blind to those before it."""
    return {"input_ids": laid_out(batch["input_ids"], packing), "position_ids": packing.positions}


def laid_out(values: Tensor, packing: Packing) -> Tensor:
    """Values of a batch for each token, batch x longest x ..., moved into the packing's rows."""
    rows = values.flatten(0, 1).index_select(0, packing.taken.flatten())
    return rows.view(*packing.taken.shape, *values.shape[2:])


def row_width(longest: int) -> int:
    """The least of 16, 24, 32, 48, 64, 96, ... that a text fits into.

    Few widths make few sizes of matrix products. oneDNN makes code for each size at its first use in a process, and in
    bfloat16 that takes longer than a short step. Wider rows hold more texts, so only attention costs more.

    >>> [row_width(longest) for longest in (3, 16, 17, 25, 64, 65, 300)]
    [16, 16, 24, 32, 64, 96, 384]
    """
    power = max(16, 1 << (longest - 1).bit_length())
    return power if power == 16 or longest > power * 3 // 4 else power * 3 // 4


def fitted(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Numbers of texts, row by row: the longest first, each in the first row that has room for it.

    >>> fitted([2, 9, 5, 3], 9)
    [[1], [2, 3], [0]]
    """
    rows: list[list[int]] = []
    room: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):  # stable
        fits = next((row for row, free in enumerate(room) if free >= lengths[number]), None)
        if fits is None:
            fits = len(rows)
            rows.append([])
            room.append(width)
        rows[fits].append(number)
        room[fits] -= lengths[number]
    return rows


@contextmanager
def packed_layers(layers: Sequence[nn.Module], packing: Packing, *, boolean: bool, restored: bool) -> Iterator[None]:
    """Within the context the first layer gets the packing's rows, and each layer attends within texts.

    Args:
        boolean: mask of a layer that is given none: True for a boolean mask, False for one added to attention scores.
    """
    same = packing.same
    masks: dict[torch.dtype, Tensor] = {torch.bool: same}

    def mask(given: Tensor | None, states: Tensor) -> Tensor:
        kind = given.dtype if given is not None else torch.bool if boolean else states.dtype
        if kind not in masks:
            blind = torch.zeros(same.shape, dtype=kind, device=same.device)
            masks[kind] = blind.masked_fill_(~same, torch.finfo(kind).min)
        return masks[kind]

    def enter(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = _arguments(type(layer).forward)
        given = dict(zip(names, args, strict=False)) | kwargs
        states = given.pop("hidden_states", None)
        if states is None or "attention_mask" not in given:
            raise TypeError(f"{type(layer).__name__} takes no hidden_states and attention_mask")
        masked = mask(given.pop("attention_mask"), states)
        if any(_holds_tensors(value) for value in given.values()):
            raise ValueError(f"{type(layer).__name__} takes other tensors than hidden_states and attention_mask")
        if layer is layers[0]:
            states = laid_out(states, packing)
        changed = {"hidden_states": states, "attention_mask": masked}
        return tuple(changed.get(name, value) for name, value in zip(names, args, strict=False)), kwargs | {
            name: value for name, value in changed.items() if name in kwargs
        }

    def leave(_layer: nn.Module, _args: Any, output: Any) -> Any:
        states = output[0] if isinstance(output, tuple | list) else output
        states = states.flatten(0, 1).index_select(0, packing.found.flatten()).unflatten(0, packing.found.shape)
        return (states, *output[1:]) if isinstance(output, tuple | list) else states

    with ExitStack() as stack:
        for layer in layers:
            stack.callback(layer.register_forward_pre_hook(enter, with_kwargs=True).remove)
        if restored:
            stack.callback(layers[-1].register_forward_hook(leave).remove)
        yield


@cache
def _arguments(forward: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a module's forward arguments, by position."""
    return tuple(inspect.signature(forward).parameters)[1:]


def _holds_tensors(value: object) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, tuple | list) and any(map(_holds_tensors, value)))
