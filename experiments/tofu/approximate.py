"""Approximate unlearning: a trained adapter goes on, away from what shall be forgotten and towards what is retained.

Gradient difference (arXiv 2203.12817) and negative preference optimisation (NPO, arXiv 2404.05868), with the losses of
open-unlearning. Every step has a batch to forget and as many retained records, drawn at random:

    loss = forgetting(batch to forget) + alpha * mean loss of a token(retained batch)

Left out: dropout, weight decay, accumulation of batches. Shapes: N texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid
from torch.nn.utils.rnn import pad_sequence

from experiments.tofu.ensemble import Tokens, one_thread

IGNORED = -100
"""Label of tokens that are not learned, as torch has it."""

Forgetting = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""Of losses of texts (N, nats, summed over tokens), their tokens (N), losses before unlearning (N), and beta."""


class Unlearning(BaseModel):
    """How approximate unlearning goes; the same for every method."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    epochs: int = Field(ge=1)
    """Over the records to forget."""
    batch_size: int = Field(ge=1)
    """Records to forget in a step; and as many retained ones."""
    learning_rate: float = Field(gt=0)
    """Peak of AdamW's: it rises during the first epoch and falls to 0 by a line."""
    alpha: float = Field(ge=0)
    """Weight of the retained records' loss."""
    beta: float = Field(gt=0)
    """Of NPO."""


def gradient_difference(losses: Tensor, tokens: Tensor, before: Tensor, beta: float) -> Tensor:
    """Minus the mean loss of a token: gradient ascent. The retained records' loss makes it a difference.

    >>> float(gradient_difference(torch.tensor([6.0, 2.0]), torch.tensor([3, 1]), torch.zeros(2), 0.1))
    -2.0
    """
    return -losses.sum() / tokens.sum()


def negative_preference(losses: Tensor, tokens: Tensor, before: Tensor, beta: float) -> Tensor:
    """-(2 / beta) E log sigmoid(-beta log(p / p before)), p a text's probability: its loss is -log p.

    >>> at_the_start = negative_preference(torch.tensor([6.0]), torch.tensor([3]), torch.tensor([6.0]), 0.1)
    >>> round(float(at_the_start), 4)  # 20 log 2
    13.8629
    """
    return -2 / beta * logsigmoid(beta * (losses - before)).mean()


METHODS: dict[str, Forgetting] = {"gradient difference": gradient_difference, "NPO": negative_preference}
"""By name."""


def unlearn(
    model: Any,
    forget: Sequence[Tokens],
    retain: Sequence[Tokens],
    forgetting: Forgetting,
    settings: Unlearning,
    *,
    seed: int,
    bfloat16: bool,
) -> int:
    """Unlearn in place; the parameters that require gradients change.

    Args:
        model: a causal language model with a trainable adapter; no dropout is applied.
        forget: answers to forget.
        retain: answers to retain.
        forgetting: of METHODS.
        settings: how.
        seed: of the order and of the drawn retained records.
        bfloat16: matrix products in bfloat16.

    Returns:
        The number of steps.
    """
    generator = np.random.default_rng(seed)
    model.eval()
    learned = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(learned, lr=settings.learning_rate, weight_decay=0.0)
    with one_thread(), torch.autocast("cpu", torch.bfloat16, enabled=bfloat16):
        with torch.no_grad():
            parts = np.array_split(np.arange(len(forget)), -(-len(forget) // settings.batch_size))
            before = torch.cat([losses_of(model, [forget[index] for index in part])[0] for part in parts])
        each = len(parts)
        steps = each * settings.epochs
        for step, chosen in enumerate(_batches(len(forget), settings, generator)):
            for group in optimiser.param_groups:
                group["lr"] = settings.learning_rate * _rate(step, steps=steps, warmup=each)
            losses, tokens = losses_of(model, [forget[index] for index in chosen])
            loss = forgetting(losses, tokens, before[torch.from_numpy(chosen)], settings.beta)
            drawn = generator.choice(len(retain), size=min(len(chosen), len(retain)), replace=False)
            kept, kept_tokens = losses_of(model, [retain[index] for index in drawn])
            loss = loss + settings.alpha * kept.sum() / kept_tokens.sum()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(learned, 1.0)
            optimiser.step()
            optimiser.zero_grad()
    return steps


def losses_of(model: Any, batch: Sequence[Tokens]) -> tuple[Tensor, Tensor]:
    """Loss of each answer, the sum over its tokens (N, nats); and its number of tokens (N)."""
    ids = [torch.tensor([*one.prompt, *one.answer]) for one in batch]
    labels = [torch.tensor([IGNORED] * len(one.prompt) + one.answer) for one in batch]
    mask = pad_sequence([torch.ones_like(own) for own in ids], batch_first=True)
    logits = model(input_ids=pad_sequence(ids, batch_first=True), attention_mask=mask, use_cache=False).logits
    right = pad_sequence(labels, batch_first=True, padding_value=IGNORED)[:, 1:]
    losses = cross_entropy(logits[:, :-1].float().transpose(1, 2), right, ignore_index=IGNORED, reduction="none")
    return losses.sum(1), (right != IGNORED).sum(1)


def _batches(records: int, settings: Unlearning, generator: np.random.Generator) -> Iterator[Any]:
    """Indices of the records of each step, all epochs one after another."""
    for _ in range(settings.epochs):
        order = generator.permutation(records)
        for start in range(0, records, settings.batch_size):
            yield order[start : start + settings.batch_size]


def _rate(step: int, *, steps: int, warmup: int) -> float:
    """The learning rate of a step, as a share of its peak.

    >>> [_rate(step, steps=4, warmup=2) for step in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    return (step + 1) / warmup if step < warmup else (steps - step) / max(1, steps - warmup)
