"""The logits of many members in one pass, with shared layers computed once.

The trunk runs without blocks, once for all members, up to the border of the shallowest one. Above the border of its
deepest block a member has rows of its own in one batch. Every module of the base runs once on that batch, with each
member's own update (`models/stacked.py`). A member joins at the border of its deepest block, with the trunk's states
there. Above the last layer each member has its own head; where heads are linear modules, in the same pass.

Where members are few, each may have merged weights (`models/merged.py`). Then it passes its layers alone, as fast as
the bare base, unless a batch is so small that reading several members' weights costs more than passing the rows.

Batches are a function of the inputs and of declared numbers. The content of memory and earlier requests change no bit.
Shapes: M members, N inputs, C labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from s3t.models.blocks import BlockModel, MountedModel
from s3t.models.links import Link, deepest, prepare, prepared_nbytes
from s3t.models.merged import merged_nbytes, merged_on
from s3t.models.passes import Batch
from s3t.models.sharing import Sharing, find_sharing, head_owners, tiled
from s3t.models.stacked import KeptStack, Stack
from s3t.models.tensors import StageTensors
from s3t.prediction.windows import Windows
from s3t.progress import SILENT, Steps
from s3t.recipe import Training
from s3t.tasks.aggregate import Scores
from s3t.training.numerics import exact_numerics

Chain = Sequence[Link]
"""A member's chain, top block first, at least one link."""

MERGED_ROWS = 8
"""Inputs of a batch from which on several members with merged weights are faster one by one than side by side."""


@dataclass(frozen=True, kw_only=True)
class Merging:
    """When members answer with merged weights: declared numbers, so that no bit depends on what is in memory.

    Attributes:
        members: of the run.
        blocks: of a member at full depth.
        memory: bytes that the merged weights of all members may take.
        kept: bytes that links may take between answers. Where those of all members would not stay in memory, merging
            them for every answer would take longer than it saves.
    """

    members: int
    blocks: int
    memory: int
    kept: int


class Ensemble:
    """Passes of many members through one base model."""

    def __init__(
        self, model: BlockModel, windows: Windows, *, training: Training, merging: Merging | None = None
    ) -> None:
        """Say how passes are made; nothing is computed.

        Args:
            windows: cuts the inputs into batches for the trunk; above it, a pass has as many rows as one of them.
            merging: whether links that are prepared here have merged weights; None: they have none. Nor have those of
                a quantised base.
        """
        self._model = model
        self._windows = windows
        self._training = training
        self._dtype = torch.bfloat16 if training.precision == "bfloat16" else torch.float32
        self._merged = merging is not None and not model.base.quantized and self._fit(merging)
        self._sharing: Sharing | None = None
        self._stacks = KeptStack()

    def _fit(self, merging: Merging) -> bool:
        blocks = range(1, merging.blocks + 1)
        merged = merged_nbytes(self._model.base, self._model.adapter, blocks)
        links = prepared_nbytes(self._model.base, self._model.adapter, blocks)
        return merging.members * merged <= merging.memory and merging.members * links <= merging.kept

    def prepared(self, block: int, tensors: StageTensors) -> Link:
        """The link of a stage that trained a block."""
        return prepare(self._model.base, self._model.adapter, block, tensors, merged=self._merged)

    def logits(self, members: Sequence[Chain], inputs: pa.Table, *, steps: Steps = SILENT) -> Scores:
        """Logits of every member on every input, M x N x C. N counts words in token tasks. NaN stands where a model
        does not see the word.

        Args:
            steps: hears of each pass its number of answers; the sum is M x N.
        """
        device = self._model.passes.device
        logits: Scores = np.full((len(members), self._windows.answers(inputs), self._model.base.answers), np.nan)
        with exact_numerics(device, self._training), self._model.mounted({}) as mount, torch.inference_mode():
            order = sorted(range(len(members)), key=lambda number: -len(members[number]))
            chains = [members[number] for number in order]
            ensemble: _Pass | None = None
            for window in self._windows.of(inputs, device):
                for rows, batch in window.batches():
                    ensemble = ensemble or _Pass(
                        self._model,
                        mount,
                        chains,
                        sharing=self._shared(batch),
                        stacks=self._stacks,
                        rows=self._windows.batch_size,
                        dtype=self._dtype,
                    )
                    logits[np.ix_(order, rows)] = ensemble.run(batch, steps)
        return logits

    @contextmanager
    def side_by_side(self, members: Sequence[Chain]) -> Iterator[list[int]]:
        """While within, a pass of the whole model has rows of every member, as many for each, member after member.

        Yields the members' positions in the order of their rows: the deepest first. They have no heads of their own.
        """
        order = sorted(range(len(members)), key=lambda number: -len(members[number]))
        chains = [members[number] for number in order]
        with ExitStack() as stack:
            stack.enter_context(exact_numerics(self._model.passes.device, self._training))
            mount = stack.enter_context(self._model.mounted({}))
            stack.enter_context(torch.inference_mode())
            if len(chains) == 1 and all(link.merged is not None for link in chains[0]):
                stack.enter_context(merged_on(self._model.modules, [link.merged or {} for link in chains[0]]))
            else:
                together = self._stacks.of(mount.base, chains, dtype=self._dtype)
                for link in chains[0]:
                    having = sum(any(other.block == link.block for other in chain) for chain in chains)
                    stack.enter_context(together.on(link.block, slice(0, having), groups=len(chains)))
            yield order

    def _shared(self, batch: Batch) -> Sharing:
        """Computations that members can share, tried out with the first batch."""
        if self._sharing is None:
            self._sharing = find_sharing(self._model.base, {name: tensor[:1] for name, tensor in batch.items()})
        return self._sharing


class _Pass:
    """One ensemble on the model: the deepest member first."""

    def __init__(
        self,
        model: BlockModel,
        mount: MountedModel,
        chains: Sequence[Chain],
        *,
        sharing: Sharing,
        stacks: KeptStack,
        rows: int,
        dtype: torch.dtype,
    ) -> None:
        self._mount = mount
        self._sharing = sharing
        self._modules = model.modules
        self._stacks = stacks
        self._passes = model.passes
        self._border = model.border
        self._chains = chains
        self._rows = rows
        self._dtype = dtype
        self._merged = all(link.merged is not None for chain in chains for link in chain)
        self._heads = head_owners(model.base) if sharing.head and len(chains) > 1 else ()

    @cached_property
    def _stack(self) -> Stack:
        return self._stacks.of(self._mount.base, self._chains, dtype=self._dtype, heads=self._heads)

    def run(self, batch: Batch, steps: Steps) -> Scores:
        """The members' logits on one batch, M x N x C."""
        count = len(next(iter(batch.values())))
        if len(self._chains) == 1 or (self._merged and count >= MERGED_ROWS):
            return self._one_by_one(batch, steps)
        sharing = self._sharing
        largest = self._rows if sharing.rows else 1
        trunk: dict[int, Tensor] = {}
        parts: list[Scores] = []
        for team in _pieces(len(self._chains), largest if sharing.trunk else 1):
            if not sharing.trunk:
                self._mount.load_head(self._chains[team.start][-1].head)  # a part of it lies below the trunk
            if not trunk or not sharing.trunk:
                trunk = self._trunk(batch)
            size = team.stop - team.start
            done = []
            for rows in _pieces(count, max(1, self._rows // size)):
                some = {name: tensor[rows] for name, tensor in batch.items()}
                done.append(self._team(team, some, {border: states[rows] for border, states in trunk.items()}))
                steps.advance(size * (rows.stop - rows.start))
            parts.append(np.concatenate(done, axis=1))
        return np.concatenate(parts)

    def _one_by_one(self, batch: Batch, steps: Steps) -> Scores:
        """Logits of members, each in a pass of its own above the trunk; of one member in one pass from the inputs."""
        trunk = self._trunk(batch) if self._sharing.trunk and len(self._chains) > 1 else {}
        parts: list[Scores] = []
        for chain in self._chains:
            border = self._border(deepest(chain))
            self._mount.load_head(chain[-1].head)
            with self._on(chain):
                parts.append(_scores(self._passes.answers(batch, border=border, states=trunk.get(border))))
            steps.advance(len(next(iter(batch.values()))))
        return np.stack(parts)

    @contextmanager
    def _on(self, chain: Chain) -> Iterator[None]:
        """While within, the model computes what a member does; without merged weights, the only member."""
        with ExitStack() as stack:
            if self._merged:
                stack.enter_context(merged_on(self._modules, [link.merged or {} for link in chain]))
            else:
                for link in chain:
                    stack.enter_context(self._stack.on(link.block, slice(0, 1), groups=1))
            yield

    def _trunk(self, batch: Batch) -> dict[int, Tensor]:
        """The base's states where members leave it."""
        return self._passes.states(batch, {self._border(deepest(chain)) for chain in self._chains})

    def _team(self, team: slice, batch: Batch, trunk: dict[int, Tensor]) -> Scores:
        """Logits of some members, side by side through the layers, then each through its own head."""
        chains = self._chains[team]
        depths = sorted({deepest(chain) for chain in chains}, reverse=True)
        states: Tensor | None = None
        for depth, above in pairwise([*depths, 0]):  # no member joins in between
            joined = sum(deepest(chain) >= depth for chain in chains)
            fresh = [trunk[self._border(depth)]] * sum(deepest(chain) == depth for chain in chains)
            states = torch.cat(fresh if states is None else [states, *fresh])
            border, top = self._border(depth), self._border(above)
            rows = tiled(batch, joined)
            with self._side_by_side(team, range(above + 1, depth + 1), groups=joined):
                if above == 0 and self._heads:
                    with self._stack.heads_on(team):
                        logits = self._passes.answers(rows, border=border, states=states)
                    return _scores(logits.reshape(joined, -1, logits.shape[-1]))
                states = self._passes.states(rows, [top], border=border, states=states)[top]
        each = []
        for chain, own_states in zip(chains, states.chunk(len(chains)) if states is not None else (), strict=True):
            self._mount.load_head(chain[-1].head)
            each.append(self._passes.answers(batch, border=self._passes.top, states=own_states))
        return _scores(torch.stack(each))

    @contextmanager
    def _side_by_side(self, team: slice, blocks: Iterable[int], *, groups: int) -> Iterator[None]:
        """While within, those of a team's first members that have a block compute with theirs."""
        with ExitStack() as stack:
            for block in blocks:
                having = sum(any(link.block == block for link in chain) for chain in self._chains[team])
                stack.enter_context(self._stack.on(block, slice(team.start, team.start + having), groups=groups))
            yield


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
