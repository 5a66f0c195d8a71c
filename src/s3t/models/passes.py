"""Forward passes through a part of a model's layers: up to a border, or from one on.

A border is the input of a transformer layer, counted from 0 at the embeddings. The last border is the output of the
last layer, where the head begins. The model's own forward runs, with the layers that a pass leaves out standing aside,
so masks, positions and the head are the model's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from s3t.models.base import Base
from s3t.models.first_token import cut_modules, first_tokens, packable
from s3t.models.packing import Packing, laid_out, packed_inputs, packed_layers
from s3t.tasks.task import ANSWERED


@contextmanager
def checkpointed(layers: Sequence[nn.Module]) -> Iterator[None]:
    """While within, these layers keep their inputs alone for the backward pass, which may come later.

    The same operations run again on the same inputs, dropout with the same draws, so no bit differs.
    """
    changed: list[Any] = list(layers)
    try:
        for layer in changed:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        yield
    finally:
        for layer in changed:
            del layer.forward  # the class's own is there again


Batch = Mapping[str, Tensor]

HEAD_TOKENS = 512
"""Tokens of which a language model's logits are in memory at a time: 128,000 words of them take 262 MB."""


def run_model(model: nn.Module, batch: Batch) -> Any:
    """Outputs of a model for a batch."""
    return model(**{name: tensor for name, tensor in batch.items() if name != ANSWERED})


class Passes:
    """Passes through one base model, whatever blocks are on it.

    The first pass from the inputs finds out the form in which layers return their states (bare or in a tuple). It also
    finds the module whose output is the first layer's input; later passes from a border skip that module.
    """

    def __init__(self, base: Base) -> None:
        self._model = base.model
        self._over_vocabulary = base.over_vocabulary
        self._first_token = base.first_token
        self._path = base.layers.path
        layers = base.model.get_submodule(base.layers.path)
        self._layers: list[nn.Module] = list(layers.children())
        self._learned = False
        self._in_tuple = 0
        """Length of the tuple that a layer returns, its states first; 0 if it returns a bare tensor."""
        self._embeddings: nn.Module | None = None

    @property
    def device(self) -> torch.device:
        return next(self._model.parameters()).device

    @property
    def top(self) -> int:
        """The border between the last layer and the head."""
        return len(self._layers)

    def logits(
        self,
        batch: Batch,
        *,
        border: int = 0,
        states: Tensor | None = None,
        packing: Packing | None = None,
        checkpointing: bool = False,
    ) -> Tensor:
        """The model's logits: one row an answer, record after record.

        Args:
            batch: as the encoder collates it; of it, what lies below the border is not looked at.
            border: where the pass starts, if there are states.
            states: batch x tokens x width, the input of the layer at the border (of the head, at the last one); None:
                the pass starts at the inputs.
            packing: the texts' places in rows that they share; None: each has its own.
            checkpointing: keep only layers' inputs for the backward pass.
        """
        if self._over_vocabulary:
            reached = self.reached(batch, border=border, states=states, packing=packing)
            return torch.cat([self.over_vocabulary(some) for some in torch.split(reached, HEAD_TOKENS)])
        begin = 0 if states is None else border
        cut = self._cut(begin, packing)
        # A layer is computed again in the backward pass, when nothing is cut any more: the last one is not, then.
        passed = self._layers[begin : self.top - bool(cut)] if checkpointing else []
        with (
            checkpointed(passed),
            self._starting(border, states),
            self._packed(begin, packing, restored=not cut),
            first_tokens(cut, packing),
        ):
            logits: Tensor = run_model(self._model, batch).logits
        return logits[batch[ANSWERED]] if ANSWERED in batch else logits

    def _cut(self, begin: int, packing: Packing | None) -> Sequence[nn.Module]:
        """Modules of the last layer that get first tokens alone in a pass; none where all tokens pass it."""
        if not self._first_token or begin == self.top:
            return ()
        modules = cut_modules(self._layers[-1])
        return modules if packing is None or packable(modules) else ()

    def answers(self, batch: Batch, *, border: int = 0, states: Tensor | None = None) -> Tensor:
        """One row an answer: its logits; of a language model, the log-probability of the token that follows, in
        float32. Arguments as for `logits`.
        """
        if not self._over_vocabulary:
            return self.logits(batch, border=border, states=states)
        reached = self.reached(batch, border=border, states=states)
        if not len(reached):
            return reached.new_zeros(0, 1, dtype=torch.float32)
        following = batch["input_ids"].roll(-1, dims=1)[batch[ANSWERED]]
        parts = zip(torch.split(reached, HEAD_TOKENS), torch.split(following, HEAD_TOKENS), strict=True)
        each = [
            self.over_vocabulary(some).float().log_softmax(dim=1).gather(1, right[:, None]) for some, right in parts
        ]
        return torch.cat(each)

    def reached(
        self,
        batch: Batch,
        *,
        border: int = 0,
        states: Tensor | None = None,
        packing: Packing | None = None,
        checkpointing: bool = False,
    ) -> Tensor:
        """The last layer's states of a language model at the tokens that it answers, answers x width. Arguments as for
        `logits`.
        """
        passed = self._layers[0 if states is None else border :] if checkpointing else []
        with checkpointed(passed):
            if packing is None:
                return self.states(batch, [self.top], border=border, states=states)[self.top][batch[ANSWERED]]
            laid = None if states is None else laid_out(states, packing)
            packed = self.states(packed_inputs(batch, packing), [self.top], border=border, states=laid)[self.top]
        return packed.flatten(0, 1).index_select(0, packing.found[batch[ANSWERED]])

    def over_vocabulary(self, reached: Tensor) -> Tensor:
        """A language model's logits, answers x vocabulary, of states that the last layer reached, answers x width."""
        # As texts of one token each: whatever the model computes of positions and masks is then small, and the same.
        inputs = torch.zeros(len(reached), 1, dtype=torch.int64, device=reached.device)
        with self._starting(self.top, reached[:, None]):
            logits: Tensor = run_model(self._model, {"input_ids": inputs}).logits
        return logits[:, 0]

    def states(
        self, batch: Batch, borders: Collection[int], *, border: int = 0, states: Tensor | None = None
    ) -> dict[int, Tensor]:
        """The states at some borders; what lies above the highest is not computed.

        Borders are not below `border`; the others are as for `logits`.
        """
        found: dict[int, Tensor] = {}
        last = max(borders)
        with ExitStack() as stack:
            for number in borders:
                stack.enter_context(self._caught(number, found, stop=number == last))
            if states is None and not self._learned:
                stack.enter_context(self._learning())
            stack.enter_context(self._starting(border, states))
            with suppress(_Stop):
                run_model(self._model, batch)
        return found

    def _packed(self, border: int, packing: Packing | None, *, restored: bool) -> AbstractContextManager[None]:
        if packing is None:
            return nullcontext()
        boolean = getattr(self._model.config, "_attn_implementation", None) == "sdpa"
        return packed_layers(self._layers[border:], packing, boolean=boolean, restored=restored)

    @contextmanager
    def _caught(self, border: int, found: dict[int, Tensor], *, stop: bool) -> Iterator[None]:
        def catch(_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            found[border] = args[0] if args else kwargs["hidden_states"]
            if stop:
                raise _Stop

        def catch_last(_layer: nn.Module, _args: Any, output: Any) -> None:
            found[border] = output[0] if isinstance(output, tuple | list) else output
            raise _Stop  # no border is higher

        if border == self.top:
            handle = self._layers[-1].register_forward_hook(catch_last)
        else:
            handle = self._layers[border].register_forward_pre_hook(catch, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    @contextmanager
    def _starting(self, border: int, states: Tensor | None) -> Iterator[None]:
        """While within, the layers below a border hand on what they get, and that at the border gets the states."""
        if states is None:
            yield
            return

        def enter(_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            return ((states, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": states})

        aside = self._layers[:border] if self._embeddings is None else [*self._layers[:border], self._embeddings]
        entered = self._layers[border : border + 1]  # none at the last border: what the last layer hands on goes there
        handles = [layer.register_forward_pre_hook(enter, with_kwargs=True, prepend=True) for layer in entered]
        try:
            for module in aside:
                module.forward = self._hand_on(states, module)
            yield
        finally:
            for handle in handles:
                handle.remove()
            for module in aside:
                module.__dict__.pop("forward", None)  # the class's own is there again

    def _hand_on(self, states: Tensor, module: Any) -> Any:
        """A module's forward that hands on states, once: one that is used again above the layers then computes."""
        bare = module is self._embeddings or not self._in_tuple
        result = states if bare else (states, *[None] * (self._in_tuple - 1))

        def forward(*_args: Any, **_kwargs: Any) -> Any:
            del module.forward
            return result

        return forward

    @contextmanager
    def _learning(self) -> Iterator[None]:
        outputs: list[tuple[nn.Module, Any]] = []

        def note(module: nn.Module, _args: Any, output: Any) -> None:
            outputs.append((module, output))

        def first(_layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            entered = args[0] if args else kwargs["hidden_states"]
            makers = [module for module, output in outputs if output is entered]
            self._embeddings = makers[-1] if makers else None  # the outermost ends last
            outputs.clear()

        def returned(_layer: nn.Module, _args: Any, output: Any) -> None:
            self._in_tuple = len(output) if isinstance(output, tuple | list) else 0
            self._learned = True

        handles = [
            module.register_forward_hook(note)
            for name, module in self._model.named_modules()
            if not f"{name}.".startswith(f"{self._path}.")
        ]
        handles.append(self._layers[0].register_forward_pre_hook(first, with_kwargs=True, prepend=True))
        handles.append(self._layers[0].register_forward_hook(returned))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


class _Stop(Exception):  # noqa: N818
    """The pass has gone far enough."""


def token_counts(batch: Batch, states: Tensor) -> list[int]:
    """Tokens of each record of a batch, without padding."""
    mask = batch.get("attention_mask")
    return [states.shape[1]] * len(states) if mask is None else mask.sum(dim=1).tolist()


def pack_states(batch: Batch, states: Tensor) -> Tensor:
    """The states of a batch without those of padding, record after record: tokens x width."""
    mask = batch.get("attention_mask")
    return states.flatten(0, 1) if mask is None else states[mask.bool()]


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
