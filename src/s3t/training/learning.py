"""One pass of training: the loss of some records, and its gradients.

A language model's logits are never in memory whole. Some hundred tokens at a time pass the output layer, forward and
backward. The gradient of the last layer's states then goes through the layers at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from s3t.models.packing import Packing
from s3t.models.passes import HEAD_TOKENS, Batch, Passes
from s3t.tasks import Target


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Records of a pass, on the model's device."""

    batch: Batch
    states: Tensor | None
    """Their states at the border where the pass starts; None: it starts at the inputs."""
    targets: Tensor
    packing: Packing | None


def learn(passes: Passes, target: Target, ready: Ready, *, border: int, total: int, checkpointing: bool) -> Tensor:
    """Add the gradients of a pass to those of its step; the sum of its answers' losses.

    Args:
        border: the layer at which the pass starts, if there are states.
        checkpointing: see `Passes.reached`.
    """
    answers = len(ready.targets)
    if target.over_vocabulary:
        return _learn_tokens(passes, target, ready, border=border, total=total, checkpointing=checkpointing)
    logits = passes.logits(
        ready.batch, border=border, states=ready.states, packing=ready.packing, checkpointing=checkpointing
    )
    loss = target.loss(logits, ready.targets)
    (loss if answers == total else loss * (answers / total)).backward()  # type: ignore[no-untyped-call, unused-ignore]
    return loss.detach() * answers


def _learn_tokens(
    passes: Passes, target: Target, ready: Ready, *, border: int, total: int, checkpointing: bool
) -> Tensor:
    summed = torch.zeros((), device=ready.targets.device)
    if not len(ready.targets):
        return summed  # the records were cut before the first token that is learned
    reached = passes.reached(
        ready.batch, border=border, states=ready.states, packing=ready.packing, checkpointing=checkpointing
    )
    gradients = []
    parts = zip(torch.split(reached.detach(), HEAD_TOKENS), torch.split(ready.targets, HEAD_TOKENS), strict=True)
    for some, right in parts:
        states = some.requires_grad_()
        loss = target.loss(passes.over_vocabulary(states), right) * (len(right) / total)
        (gradient,) = torch.autograd.grad(loss, states)
        gradients.append(gradient)
        summed += loss.detach() * total
    reached.backward(torch.cat(gradients))  # type: ignore[no-untyped-call, unused-ignore]
    return summed
