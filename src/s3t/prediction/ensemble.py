"""The logits of many members in one pass, with shared layers computed once.

The trunk runs without blocks, once for all members, up to the border of the shallowest one. Above the border of its
deepest block a member has rows of its own in one batch. Every module of the base runs once on that batch, with each
member's own update (`adapters.Stack`). A member joins at the border of its deepest block, with the trunk's states
there. Above the last layer each member has its own head; where heads are linear modules, in the same pass.

Where members are few, each may have merged weights. Then it passes its layers alone, as fast as the bare base, unless a
batch is so small that reading several members' weights costs more than passing the rows.

What is in memory of stages is trained on records, so links are named by the keys of their artifacts, and
`Resident.keep` drops those that the ledger no longer names. A deletion is not erased before that.

Inputs are encoded a window at a time, so that any number of them takes bounded memory. Batches are a function of the
inputs and of declared numbers. The content of memory and earlier requests change no bit.
Shapes: M members, N inputs, C labels.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from s3t.errors import InputError
from s3t.events import Progress, WorkStep, silent
from s3t.models.adapters import KeptStack, Link, Stack, StageTensors
from s3t.models.blocks import Model
from s3t.models.encoders import PASS_TOKENS, Encoder, tokens
from s3t.models.passes import Batch, Start, can_share, head_owners, tiled
from s3t.recipe import Recipe, TrainingSettings
from s3t.store.artifacts import Artifact, Manifest, parent_of
from s3t.tasks.aggregate import Scores, shares
from s3t.training.numerics import exact_numerics

T = TypeVar("T")


class Kept(Generic[T]):
    """Values that are computed from artifacts, by their keys: those used last, as many as the budget holds. Safe to
    share among threads."""

    def __init__(self, budget: int, *, size: Callable[[T], int] = lambda _: 1) -> None:
        self._budget = budget
        self._size = size
        self._lock = threading.Lock()
        self._values: OrderedDict[tuple[str, ...], T] = OrderedDict()  # the one used last is last
        self.used = 0
        """Size of all values."""

    @property
    def keys(self) -> set[str]:
        """Artifacts of which something is in memory."""
        with self._lock:
            return {key for keys in self._values for key in keys}

    def of(self, keys: tuple[str, ...], compute: Callable[[], T]) -> T:
        with self._lock:
            value = self._values.get(keys)
            if value is not None:
                self._values.move_to_end(keys)
                return value
        value = compute()  # not under the lock: `keep` must not wait for it
        self._put({keys: value})
        return value

    def _put(self, values: Mapping[tuple[str, ...], T]) -> None:
        with self._lock:
            for keys, value in values.items():
                self._drop(keys)
                self._values[keys] = value
                self.used += self._size(value)
            while self.used > self._budget:
                self._drop(next(iter(self._values)))

    def keep(self, alive: Set[str]) -> None:
        """Drop every value that was computed from an artifact that is not alive."""
        with self._lock:
            for keys in [keys for keys in self._values if not alive >= set(keys)]:
                self._drop(keys)

    def _drop(self, keys: tuple[str, ...]) -> None:
        if keys in self._values:
            self.used -= self._size(self._values.pop(keys))


class Resident(Kept[tuple[Manifest, Link]]):
    """The links that were used last. The budget is in bytes; what is being answered with is in memory in any case."""

    def __init__(self, budget: int) -> None:
        super().__init__(budget, size=lambda entry: entry[1].nbytes)

    def chain(
        self, keys: Sequence[str], *, read: Callable[[], Sequence[Artifact]], prepare: Callable[[Artifact], Link]
    ) -> list[Link]:
        """A chain of links by their artifacts' keys, in the order of training; from memory if all of it is there."""
        with self._lock:
            cached = [self._values.get((key,)) for key in keys]
        entries = [entry for entry in cached if entry is not None]
        if len(entries) < len(keys) or not _is_chain([manifest for manifest, _ in entries]):
            entries = []
            artifacts = read()  # not under the lock: `keep` must not wait for a disk
            for entry, artifact in zip(cached, artifacts, strict=True):
                if entry is None or entry[0].sha256 != artifact.manifest.sha256:
                    entry = artifact.manifest, prepare(artifact)
                entries.append(entry)
        self._put({(key,): entry for key, entry in zip(keys, entries, strict=True)})
        return [link for _, link in entries]


def _is_chain(manifests: Sequence[Manifest]) -> bool:
    """True if each artifact names the bytes of the one before it as parent; keys do not fix bytes."""
    return all(below.parents == (parent_of(above),) for above, below in pairwise(manifests))


class Windows:
    """Division of inputs into windows and batches: a function of the inputs and declared numbers alone.

    `window_batches` are encoded at a time. On a CPU a batch is smaller than `batch_size` where its padding would cost
    more than another pass.
    """

    def __init__(self, encoder: Encoder, *, batch_size: int, window_batches: int) -> None:
        self.batch_size = batch_size
        self._encoder = encoder
        self._size = batch_size * window_batches

    def of(self, inputs: pa.Table, device: torch.device) -> Iterator[list[tuple[list[int], Batch]]]:
        """Yields for one window after another its batches, each with the places of its answers among all. An input is
        in one batch.
        """
        place = 0
        for start in range(0, inputs.num_rows, self._size):
            rows = inputs.slice(start, self._size)
            counts = self._encoder.answers(rows) or [1] * rows.num_rows
            starts = list(itertools.accumulate(counts[:-1], initial=place))
            place += sum(counts)
            records = self._encoder.encode(rows)
            pass_tokens = PASS_TOKENS if device.type == "cpu" else None
            batches = self._encoder.batches(records, list(map(tokens, records)), self.batch_size, device, pass_tokens)
            yield [
                ([starts[row] + own for row in numbers for own in self._encoder.places(records[row])], batch)
                for numbers, batch in batches
            ]

    def answers(self, inputs: pa.Table) -> int:
        """Places of answers to all inputs: one an input, or one a word."""
        counts = self.counts(inputs)
        return inputs.num_rows if counts is None else sum(counts)

    def counts(self, inputs: pa.Table) -> list[int] | None:
        """Number of answers to each input; None: one each."""
        starts = range(0, max(1, inputs.num_rows), self._size)  # of no inputs, too, an encoder tells which it is
        found = [self._encoder.answers(inputs.slice(start, self._size)) for start in starts]
        if any(counts is None for counts in found):
            return None
        return [count for counts in found for count in counts or ()]


Chain = Sequence[Link]
"""A member's chain, top block first, at least one link."""

MERGED_ROWS = 8
"""Inputs of a batch from which on several members with merged weights are faster one by one than side by side."""


def fit_merged(model: Model, *, members: int, blocks: int, memory: int, kept: int) -> bool:
    """True if all members may answer with merged weights, which may take `memory` bytes. It depends on declared numbers
    alone, so no bit depends on what is in memory.

    Links may take `kept` bytes between answers. Where those of all members would not stay in memory, merging them for
    every answer would take longer than it saves.
    """
    merged, links = model.prepared_nbytes(range(1, blocks + 1))
    return not model.base.quantized and members * merged <= memory and members * links <= kept


class Ensemble:
    """Passes of many members through one base model. Above the trunk a pass has as many rows as a batch of the windows.
    If `merged`, links that are prepared here have merged weights. Whole models take the place of the base in turn.
    """

    def __init__(self, model: Model, windows: Windows, *, training: TrainingSettings, merged: bool = False) -> None:
        self.model = model
        dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
        self.stacks = KeptStack(model.modules, dtype=dtype)
        self.rows = windows.batch_size
        self._windows = windows
        self._training = training
        self._merged = merged
        self._can_share: bool | None = None

    def prepared(self, block: int, tensors: StageTensors) -> Link:
        """The link of a stage that trained a block."""
        return self.model.prepare(block, tensors, merged=self._merged)

    def logits(self, members: Sequence[Chain], inputs: pa.Table, *, progress: Progress = silent) -> Scores:
        """Logits of every member on every input, M x N x C. N counts words in token tasks. NaN stands where a model
        does not see the word. `progress` hears of each pass its number of answers; the sum is M x N.
        """
        device = self.model.base.device
        logits: Scores = np.full((len(members), self._windows.answers(inputs), self.model.base.answers), np.nan)
        with exact_numerics(device, self._training), self.model.mounted({}), torch.inference_mode():
            order, chains = _deepest_first(members)
            ensemble: _Pass | None = None
            for rows, batch in itertools.chain.from_iterable(self._windows.of(inputs, device)):
                ensemble = ensemble or _Pass(self, chains, batch)
                logits[np.ix_(order, rows)] = ensemble.run(batch, progress)
        return logits

    @contextmanager
    def side_by_side(self, members: Sequence[Chain], shards: Sequence[int]) -> Iterator[Tensor]:
        """While within, a pass of the whole model has rows of every member, as many for each, the deepest first.

        Yields the members' weights in that order, on the model's device; `shards` are theirs. They have no heads of
        their own.
        """
        order, chains = _deepest_first(members)
        if self.model.adapter is None and len(chains) > 1:
            problem = "members that are whole models write alone; pass `prefixes` with one of a shard"
            raise InputError("generate", problem)
        with exact_numerics(self.model.base.device, self._training), self.model.mounted({}), torch.inference_mode():
            on: AbstractContextManager[object]
            if len(chains) == 1 and _are_merged(chains):
                on = self.model.merged_on(chains[0])
            else:
                stack = self.stacks.of(chains)
                on = stack.on([link.block for link in chains[0]], slice(0, len(chains)), groups=len(chains))
            weights = shares([shards[number] for number in order])
            with on:
                yield torch.tensor(weights, device=self.model.base.device, dtype=torch.float32)

    def can_share(self, batch: Batch) -> bool:
        """True if members can share a pass, tried out with a batch, the first time."""
        if self._can_share is None:
            self._can_share = can_share(self.model.base, {name: tensor[:1] for name, tensor in batch.items()})
        return self._can_share


def _deepest_first(members: Sequence[Chain]) -> tuple[list[int], list[Chain]]:
    order = sorted(range(len(members)), key=lambda number: -len(members[number]))
    return order, [members[number] for number in order]


def _deepest(chain: Chain) -> int:
    return max(link.block for link in chain)


def _are_merged(chains: Sequence[Chain]) -> bool:
    return all(link.merged is not None for chain in chains for link in chain)


class _Pass:
    """One ensemble on the model: the deepest member first."""

    def __init__(self, ensemble: Ensemble, chains: Sequence[Chain], first: Batch) -> None:
        self._ensemble = ensemble
        self._model = ensemble.model
        self._passes = ensemble.model.passes
        self._chains = chains
        self._merged = _are_merged(chains)
        self._has_trunk = self._model.adapter is not None and len(chains) > 1
        self._side_by_side = self._has_trunk and ensemble.can_share(first)
        self._borders = [ensemble.model.border(_deepest(chain)) for chain in chains]
        """Where each member leaves the trunk."""

    @cached_property
    def _stack(self) -> Stack:
        heads = head_owners(self._model.base) if self._side_by_side else ()
        return self._ensemble.stacks.of(self._chains, heads=heads)

    def run(self, batch: Batch, progress: Progress) -> Scores:
        """The members' logits on one batch, M x N x C."""
        count, most = len(next(iter(batch.values()))), self._ensemble.rows
        trunk = self._passes.states(batch, set(self._borders)) if self._has_trunk else {}
        if not self._side_by_side or (self._merged and count >= MERGED_ROWS):
            return self._one_by_one(batch, trunk, progress)
        parts: list[Scores] = []
        for team in _pieces(len(self._chains), most):
            size = team.stop - team.start
            done = []
            for rows in _pieces(count, max(1, most // size)):
                some = {name: tensor[rows] for name, tensor in batch.items()}
                done.append(self._team(team, some, {border: states[rows] for border, states in trunk.items()}))
                progress(WorkStep(count=size * (rows.stop - rows.start)))
            parts.append(np.concatenate(done, axis=1))
        return np.concatenate(parts)

    def _one_by_one(self, batch: Batch, trunk: Mapping[int, Tensor], progress: Progress) -> Scores:
        """Logits of members, each in a pass of its own above the trunk; without one, from the inputs."""
        parts: list[Scores] = []
        for number, (chain, border) in enumerate(zip(self._chains, self._borders, strict=True)):
            self._model.load_head(chain[-1].head)
            on: AbstractContextManager[object]
            if self._merged:
                on = self._model.merged_on(chain)
            else:
                on = self._stack.on([link.block for link in chain], slice(number, number + 1), groups=1)
            with on:
                start = Start(border, trunk[border]) if self._has_trunk else None
                parts.append(_scores(self._passes.answers(batch, start)))
            progress(WorkStep(count=len(next(iter(batch.values())))))
        return np.stack(parts)

    def _team(self, team: slice, batch: Batch, trunk: Mapping[int, Tensor]) -> Scores:
        """Logits of some members, side by side through the layers and their heads."""
        chains, border_of = self._chains[team], self._model.border
        depths = sorted({_deepest(chain) for chain in chains}, reverse=True)
        states = trunk[border_of(depths[0])][:0]
        for depth, above in pairwise([*depths, 0]):  # no member joins in between
            joined = sum(_deepest(chain) >= depth for chain in chains)
            fresh = [trunk[border_of(depth)]] * sum(_deepest(chain) == depth for chain in chains)
            start, rows = Start(border_of(depth), torch.cat([states, *fresh])), tiled(batch, joined)
            with self._stack.on(range(above + 1, depth + 1), team, groups=joined):
                if above:
                    top = border_of(above)
                    states = self._passes.states(rows, [top], start)[top]
                else:
                    with self._stack.heads_on(team):
                        logits = self._passes.answers(rows, start)
        return _scores(logits.reshape(len(chains), -1, logits.shape[-1]))


def _scores(logits: Tensor) -> Scores:
    scores: Scores = logits.float().cpu().numpy().astype(np.float64)
    return scores


def _pieces(count: int, largest: int) -> Iterator[slice]:
    """Consecutive parts of a range, none larger than `largest`, of sizes that differ by one at most.

    >>> [(part.start, part.stop) for part in _pieces(7, 3)]
    [(0, 2), (2, 4), (4, 7)]
    """
    number = math.ceil(count / largest)
    for start, stop in pairwise([count * part // number for part in range(number + 1)] if number else []):
        yield slice(start, stop)


def ensemble_of(model: Model, windows: Windows, recipe: Recipe) -> Ensemble:
    settings = recipe.prediction
    merged = settings.ensemble != "sequences" and fit_merged(
        model,
        members=recipe.partition.shards,
        blocks=recipe.blocks,
        memory=settings.merged_memory,
        kept=settings.adapter_memory,
    )
    return Ensemble(model, windows, training=recipe.training, merged=merged)
