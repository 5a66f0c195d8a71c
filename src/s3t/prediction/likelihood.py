"""Likelihood of given continuations under an ensemble; and whether it would have written them itself.

Shapes: M members; U tokens of all continuations of a batch; D width; V words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from s3t.models.passes import HEAD_TOKENS, Passes
from s3t.models.sharing import tiled
from s3t.prediction.choice import AnyEnsemble
from s3t.progress import SILENT, Steps
from s3t.tasks.aggregate import shares
from s3t.tasks.task import ANSWERED


class Continuation(NamedTuple):
    """Tokens after others."""

    before: Sequence[int]
    """At least one."""
    tokens: Sequence[int]


class Likelihood(NamedTuple):
    """Likelihood of a continuation."""

    log_probability: float
    greedy: bool
    """True if each token was the likeliest."""


def likelihoods(
    passes: Passes, continuations: Sequence[Continuation], *, weights_M: NDArray[Any], pad: int
) -> list[Likelihood]:
    """The likelihood of each continuation under the mean of the members' probabilities.

    Args:
        weights_M: of the members; they add up to 1.
    """
    batch = {name: tensor.to(passes.device) for name, tensor in _batch(continuations, pad).items()}
    weights = torch.tensor(weights_M, device=passes.device, dtype=torch.float32)
    members, right_U = len(weights), torch.tensor([token for one in continuations for token in one.tokens])
    right_U = right_U.to(passes.device)
    reached_MUD = passes.reached(tiled(batch, members)).view(members, len(right_U), -1)
    found: list[Tensor] = []
    likeliest: list[Tensor] = []
    for part in torch.split(torch.arange(len(right_U), device=passes.device), max(1, HEAD_TOKENS // members)):
        logits_MUV = passes.over_vocabulary(reached_MUD[:, part].flatten(0, 1)).float().view(members, len(part), -1)
        probabilities_UV = torch.einsum("m,muv->uv", weights, logits_MUV.softmax(dim=2))
        found.append(probabilities_UV.gather(1, right_U[part][:, None])[:, 0].double().log())
        likeliest.append(probabilities_UV.argmax(dim=1) == right_U[part])
    counts = [len(one.tokens) for one in continuations]
    each = zip(torch.split(torch.cat(found), counts), torch.split(torch.cat(likeliest), counts), strict=True)
    return [Likelihood(float(values.sum()), bool(greedy.all())) for values, greedy in each]


def _batch(continuations: Sequence[Continuation], pad: int) -> dict[str, Tensor]:
    """All tokens but the last, after which nothing is asked: a text may be one longer than the model."""
    ids = [torch.tensor([*one.before, *one.tokens][:-1]) for one in continuations]
    answered = [torch.tensor([False] * (len(one.before) - 1) + [True] * len(one.tokens)) for one in continuations]
    masks = [torch.ones_like(one) for one in ids]
    return {
        name: pad_sequence(values, batch_first=True, padding_value=value)
        for name, values, value in (("input_ids", ids, pad), ("attention_mask", masks, 0), (ANSWERED, answered, False))
    }


def likelihoods_of(
    continuations: Sequence[Continuation],
    ensemble: AnyEnsemble,
    chains: Sequence[Sequence[Any]],
    *,
    shards: Sequence[int],
    passes: Passes,
    pad: int,
    batch_size: int,
    steps: Steps = SILENT,
) -> list[Likelihood]:
    """The likelihood of each continuation, some at a time, the shortest first.

    Args:
        shards: the shard of each member; all have the same weight.
        pad: as for `likelihoods`.
    """
    order = sorted(range(len(continuations)), key=lambda number: sum(map(len, continuations[number])))  # stable
    size = max(1, batch_size // len(chains))
    found: dict[int, Likelihood] = {}
    with ensemble.side_by_side(chains) as members:
        weights_M = shares([shards[number] for number in members])
        for first in range(0, len(order), size):
            some = order[first : first + size]
            batch = [continuations[number] for number in some]
            found |= zip(some, likelihoods(passes, batch, weights_M=weights_M, pad=pad), strict=True)
            steps.advance(len(some))
    return [found[number] for number in range(len(continuations))]
