"""Forward passes through a part of a model's layers: up to a border, or from one on.

A border is the input of a transformer layer, counted from 0 at the embeddings. The last border is the output of the
last layer, where the head begins. The model's own forward runs, and the layers that a pass leaves out hand on what they
get, so masks, positions and the head are the model's.

Two shortcuts change outputs by rounding alone (and by the draws of an adapter's dropout). Several short texts share a
row, each blind to the others, with hardly a token of padding: right if only attention mixes tokens, and positions are
added below the layers. The last layer is passed for the first token alone, where the head reads no other. Whether that
is so of a model, `assembly` tries out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

from s3t.models.base import Base
from s3t.models.layers import Float32Linear, forwards_replaced, removed
from s3t.tasks.task import ANSWERED


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
    """Lay the texts of a batch into as few rows as first-fit-decreasing finds; None where it is as it would be packed.

    The mask, batch x longest, has 1 where there is a token, 0 where there is padding, and is on the CPU.
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

    A layer that is given no mask gets a boolean one, or one added to attention scores. If `restored`, the last layer's
    states are the batch's again.
    """
    same = packing.same
    masks: dict[torch.dtype, Tensor] = {torch.bool: same}

    def enter(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names = _arguments(type(layer).forward)
        given = dict(zip(names, args, strict=False)) | kwargs
        states = given.pop("hidden_states", None)
        if states is None or "attention_mask" not in given:
            raise TypeError(f"{type(layer).__name__} takes no hidden_states and attention_mask")
        mask = given.pop("attention_mask")
        if any(_holds_tensors(value) for value in given.values()):
            raise ValueError(f"{type(layer).__name__} takes other tensors than hidden_states and attention_mask")
        kind = mask.dtype if mask is not None else torch.bool if boolean else states.dtype
        if kind not in masks:
            blind = torch.zeros(same.shape, dtype=kind, device=same.device)
            masks[kind] = blind.masked_fill_(~same, torch.finfo(kind).min)
        states = laid_out(states, packing) if layer is layers[0] else states
        changed = {"hidden_states": states, "attention_mask": masks[kind]}
        return tuple(changed.get(name, value) for name, value in zip(names, args, strict=False)), kwargs | {
            name: value for name, value in changed.items() if name in kwargs
        }

    def leave(_layer: nn.Module, _args: Any, output: Any) -> Any:
        states = _bare(output).flatten(0, 1).index_select(0, packing.found.flatten()).unflatten(0, packing.found.shape)
        return (states, *output[1:]) if isinstance(output, tuple | list) else states

    hooks = [layer.register_forward_pre_hook(enter, with_kwargs=True) for layer in layers]
    with removed(*hooks, *([layers[-1].register_forward_hook(leave)] if restored else [])):
        yield


def _bare(output: Any) -> Any:
    """The states that a layer returns, by themselves or first in a tuple."""
    return output[0] if isinstance(output, tuple | list) else output


@cache
def _arguments(forward: Callable[..., Any]) -> tuple[str, ...]:
    """Names of a module's forward arguments, by position."""
    return tuple(inspect.signature(forward).parameters)[1:]


def _holds_tensors(value: object) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, tuple | list) and any(map(_holds_tensors, value)))


def cut_modules(layer: nn.Module, *, packed: bool = False) -> Sequence[nn.Module]:
    """Modules of a layer at whose inputs tokens can be cut; none of a form that is not known.

    BERT and its kin add the residual in a module after the attention, which gets both tensors. ViT and its kin add it
    in the layer: there a sum with all tokens is right at the first one, and is cut at the next module's input. It is
    not where texts are packed.
    """
    attention = getattr(layer, "attention", None)
    output = getattr(attention, "output", None)
    if isinstance(output, nn.Module) and list(inspect.signature(output.forward).parameters) == _RESIDUAL:
        return (output,)
    projection, norm = getattr(attention, "o_proj", None), getattr(layer, "layernorm_after", None)
    if isinstance(projection, nn.Module) and isinstance(norm, nn.Module) and not packed:
        return (projection, norm)
    return ()


_RESIDUAL = ["hidden_states", "input_tensor"]


@contextmanager
def first_tokens(modules: Sequence[nn.Module], packing: Packing | None) -> Iterator[None]:
    """While within, modules get the first token of each text or image alone, batch x 1 x width.

    Attention needs every token's keys and values. What follows it in the last layer computes each token by itself, so
    all but the first are work that nothing reads: about three quarters of that layer, forward and backward.
    """

    def enter(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if packing is None:
            return tuple(states[:, :1] for states in args)
        return tuple(states.flatten(0, 1).index_select(0, packing.found[:, 0])[:, None] for states in args)

    with removed(*(module.register_forward_pre_hook(enter) for module in modules)):
        yield


def checkpointed(layers: Sequence[nn.Module]) -> AbstractContextManager[None]:
    """While within, these layers keep their inputs alone for the backward pass, which may come later.

    The same operations run again on the same inputs, dropout with the same draws, so no bit differs.
    """
    return forwards_replaced({layer: partial(checkpoint, layer.forward, use_reentrant=False) for layer in layers})


Batch = Mapping[str, Tensor]


class Start(NamedTuple):
    """Where a pass starts, if not at the inputs. What lies below is not looked at."""

    border: int
    """The states enter the layer there; at the last border, the head."""
    states: Tensor
    """Batch x tokens x width."""


HEAD_TOKENS = 512
"""Tokens of which a language model's logits are in memory at a time: 128,000 words of them take 262 MB."""


def run_model(model: nn.Module, batch: Batch) -> Any:
    return model(**{name: tensor for name, tensor in batch.items() if name != ANSWERED})


class Passes:
    """Passes through one base model, whatever blocks are on it. The first one from the inputs learns how layers return
    their states, and which module feeds the first layer; passes from a border need both.

    With a `packing`, texts share rows; with `checkpointing`, layers keep their inputs alone for the backward pass.
    """

    def __init__(self, base: Base) -> None:
        self.base = base
        self._layers = list(base.layers)
        self.top = len(self._layers)
        """The border between the last layer and the head."""
        self._embeddings: list[nn.Module] | None = None
        """The module whose output is the first layer's input, if there is one; None: not looked for yet."""
        self._in_tuple: int | None = None
        """Length of the tuple that a layer returns, its states first; 0 if it returns a bare tensor; None: unknown."""

    def logits(
        self, batch: Batch, start: Start | None = None, *, packing: Packing | None = None, checkpointing: bool = False
    ) -> Tensor:
        """The model's logits: one row an answer, record after record."""
        if self.base.over_vocabulary:
            reached = self.reached(batch, start, packing=packing)
            return torch.cat([self.over_vocabulary(some) for some in torch.split(reached, HEAD_TOKENS)])
        begin = 0 if start is None else start.border
        all_tokens = not self.base.first_token or begin == self.top
        cut = () if all_tokens else cut_modules(self._layers[-1], packed=packing is not None)
        # A layer is computed again in the backward pass, when nothing is cut any more: the last one is not, then.
        passed = self._layers[begin : self.top - bool(cut)] if checkpointing else []
        together: AbstractContextManager[None] = nullcontext()
        if packing is not None:
            boolean = getattr(self.base.model.config, "_attn_implementation", None) == "sdpa"
            together = packed_layers(self._layers[begin:], packing, boolean=boolean, restored=not cut)
        with checkpointed(passed), self._starting(start), together, first_tokens(cut, packing):
            logits: Tensor = run_model(self.base.model, batch).logits
        return logits[batch[ANSWERED]] if ANSWERED in batch else logits

    def answers(self, batch: Batch, start: Start | None = None) -> Tensor:
        """One row an answer: its logits; of a language model, the log-probability of the token that follows, in
        float32.
        """
        if not self.base.over_vocabulary:
            return self.logits(batch, start)
        reached = self.reached(batch, start)
        if not len(reached):
            return reached.new_zeros(0, 1, dtype=torch.float32)
        following = batch["input_ids"].roll(-1, dims=1)[batch[ANSWERED]]
        parts = zip(torch.split(reached, HEAD_TOKENS), torch.split(following, HEAD_TOKENS), strict=True)
        each = [self.over_vocabulary(some).float().log_softmax(1).gather(1, right[:, None]) for some, right in parts]
        return torch.cat(each)

    def reached(
        self, batch: Batch, start: Start | None = None, *, packing: Packing | None = None, checkpointing: bool = False
    ) -> Tensor:
        """The last layer's states of a language model at the tokens that it answers, answers x width."""
        with checkpointed(self._layers[0 if start is None else start.border :] if checkpointing else []):
            if packing is None:
                return self.states(batch, [self.top], start)[self.top][batch[ANSWERED]]
            laid = None if start is None else Start(start.border, laid_out(start.states, packing))
            # Positions that begin anew tell transformers where a text begins; it is then blind to those before it.
            inputs = {"input_ids": laid_out(batch["input_ids"], packing), "position_ids": packing.positions}
            packed = self.states(inputs, [self.top], laid)[self.top]
        return packed.flatten(0, 1).index_select(0, packing.found[batch[ANSWERED]])

    def over_vocabulary(self, reached: Tensor) -> Tensor:
        """A language model's logits, answers x vocabulary, of states that the last layer reached, answers x width."""
        # As texts of one token each: whatever the model computes of positions and masks is then small, and the same.
        inputs = torch.zeros(len(reached), 1, dtype=torch.int64, device=reached.device)
        with self._starting(Start(self.top, reached[:, None])):
            logits: Tensor = run_model(self.base.model, {"input_ids": inputs}).logits
        return logits[:, 0]

    def states(self, batch: Batch, borders: Collection[int], start: Start | None = None) -> dict[int, Tensor]:
        """The states at some borders, none below the start; what lies above the highest is not computed."""
        found: dict[int, Tensor] = {}
        last = max(borders)

        def catch(number: int, _layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found[number] = _entered(args, kwargs)
            if number == last:
                raise _Stop

        def catch_top(_layer: nn.Module, _args: Any, output: Any) -> None:
            found[self.top] = _bare(output)
            raise _Stop  # no border is higher

        hooks = [
            self._layers[-1].register_forward_hook(catch_top)
            if number == self.top
            else self._layers[number].register_forward_pre_hook(partial(catch, number), with_kwargs=True)
            for number in borders
        ]
        hooks += self._learning() if start is None else ()
        with removed(*hooks), self._starting(start), suppress(_Stop):
            run_model(self.base.model, batch)
        return found

    @contextmanager
    def _starting(self, start: Start | None) -> Iterator[None]:
        """While within, the layers below a border hand on what they get, and that at the border gets the states."""
        if start is None:
            yield
            return
        border, states = start

        def enter(_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return ((states, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": states})

        def handing_on(module: Any, result: Any) -> Callable[..., Any]:
            """A forward that hands on states, once: a module that is used again above the layers then computes."""

            def forward(*_args: Any, **_kwargs: Any) -> Any:
                del module.forward
                return result

            return forward

        in_tuple = (states, *[None] * (self._in_tuple - 1)) if self._in_tuple else states
        aside = {layer: handing_on(layer, in_tuple) for layer in self._layers[:border]}
        aside |= {module: handing_on(module, states) for module in self._embeddings or ()}
        entered = self._layers[border : border + 1]  # none at the last border: what the last layer hands on goes there
        hooks = [layer.register_forward_pre_hook(enter, with_kwargs=True, prepend=True) for layer in entered]
        with removed(*hooks), forwards_replaced(aside):
            yield

    def _learning(self) -> Iterator[RemovableHandle]:
        """Hooks that find out what is not known yet."""
        outputs: list[tuple[nn.Module, Any]] = []

        def first(_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            entered = _entered(args, kwargs)
            self._embeddings = [module for module, output in outputs if output is entered][-1:]  # the outermost
            outputs.clear()

        def returned(_layer: nn.Module, _args: Any, output: Any) -> None:
            self._in_tuple = len(output) if isinstance(output, tuple | list) else 0

        if self._embeddings is None:
            for name, module in self.base.model.named_modules():
                if not f"{name}.".startswith(f"{self.base.path}."):
                    yield module.register_forward_hook(lambda module, _, output: outputs.append((module, output)))
            yield self._layers[0].register_forward_pre_hook(first, with_kwargs=True, prepend=True)
        if self._in_tuple is None:
            yield self._layers[0].register_forward_hook(returned)


def _entered(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The states that a layer gets."""
    return args[0] if args else kwargs["hidden_states"]


class _Stop(Exception):  # noqa: N818
    """The pass has gone far enough."""


def pack_states(batch: Batch, states: Tensor) -> tuple[Tensor, list[int]]:
    """The states of a batch without those of padding, record after record, tokens x width; tokens of each record."""
    mask = batch.get("attention_mask")
    if mask is None:
        return states.flatten(0, 1), [states.shape[1]] * len(states)
    return states[mask.bool()], mask.sum(dim=1).tolist()


def padded_states(batch: Batch, packed: Sequence[Tensor]) -> Tensor:
    """States as a batch takes them, batch x tokens x width; those of padding, which nothing looks at, are zero."""
    mask, joined = batch.get("attention_mask"), torch.cat(list(packed))
    if mask is None:
        return joined.reshape(len(packed), -1, joined.shape[-1])
    if len(joined) == mask.numel():
        return joined.reshape(*mask.shape, -1)
    states = joined.new_zeros(*mask.shape, joined.shape[-1])
    states[mask.bool()] = joined
    return states


def head_owners(base: Base) -> tuple[str, ...]:
    """Full names of the modules that the head's parameters belong to."""
    return tuple(dict.fromkeys(name.rpartition(".")[0] for name in base.head))


def tiled(batch: Batch, times: int) -> dict[str, Tensor]:
    """A batch whose rows come several times, all of them and then all of them again."""
    if times == 1:
        return dict(batch)
    return {name: tensor.repeat(times, *[1] * (tensor.dim() - 1)) for name, tensor in batch.items()}


def can_share(base: Base, one: Batch) -> bool:
    """True if members of a base model can share a pass, found by trial: architectures do not declare it.

    In every linear module of the layers rows of the batch must come first, so that each row's member is known: not so
    where something that all rows have in common goes through one (the relative positions of DeBERTa). The head's
    parameters must be those of linear modules, each of which gets rows first, once. The model has no blocks on; the
    batch is of one record, whose content does not matter.
    """
    # Twice, for the number of rows may also be that of something else.
    return all(_shares(base, tiled(one, count), count) for count in (2, 3))


def _shares(base: Base, batch: Batch, count: int) -> bool:
    owners = {name: base.model.get_submodule(name) for name in head_owners(base)}
    got: list[tuple[str, bool]] = []
    """For each linear module of the layers, without a name, and each owner that ran: True if it got rows first."""

    def note(name: str, least: int, _module: nn.Module, args: tuple[Any, ...]) -> None:
        got.append((name, bool(args) and args[0].dim() >= least and args[0].shape[0] == count))

    linears = [module for layer in base.layers for module in layer.modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_pre_hook(partial(note, "", 3)) for module in linears]
    hooks += [owner.register_forward_pre_hook(partial(note, name, 2)) for name, owner in owners.items()]
    with removed(*hooks), torch.no_grad():
        run_model(base.model, batch)
    own = {f"{name}.{part}" for name, owner in owners.items() for part, _ in owner.named_parameters(recurse=False)}
    linear = own == set(base.head) and all(type(owner) in (nn.Linear, Float32Linear) for owner in owners.values())
    return linear and sorted(name for name, _ in got if name) == sorted(owners) and all(first for _, first in got)
