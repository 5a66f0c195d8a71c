"""Features of records, of which prototypes and ridge heads are made.

Shapes: N inputs; T tokens; U answers, one an input or one a word; D features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from s3t.events import Progress, WorkStep, silent
from s3t.models.base import Pooling, pooled
from s3t.models.blocks import Model
from s3t.models.encoders import Encoder
from s3t.models.passes import Batch, Passes
from s3t.tasks.task import ANSWERED
from s3t.training.examples import EncodedSlice


@dataclass(frozen=True)
class FeatureMap:
    """States of some layers, each scaled to length 1, joined. It needs no pooler and no head."""

    borders: tuple[int, ...]
    """The layers' outputs, as borders of passes."""
    poolings: tuple[Pooling, ...] = ("mean",)
    """Tokens of an input that has one answer; where words are answered, their own states are taken."""

    @property
    def parts(self) -> int:
        """Vectors of length 1 that are joined; each is as wide as the model."""
        return len(self.borders) * len(self.poolings)

    def width(self, model: Model) -> int:
        """D."""
        return self.parts * model.base.width

    def of(self, passes: Passes, batch: Batch) -> Tensor:
        """U x D, float32."""
        with torch.no_grad():
            states = passes.states(batch, self.borders)
        if ANSWERED in batch:
            found = [states[border][batch[ANSWERED]] for border in self.borders]
        else:
            mask = batch.get("attention_mask")
            found = [pooled(states[border], mask, pooling) for pooling in self.poolings for border in self.borders]
        return torch.cat([normalize(part.float(), dim=1) for part in found], dim=1)


class HeadInputs:
    """The inputs of the last linear module of a model's head, as features. A ridge head takes that module's place."""

    parts = 1

    def width(self, model: Model) -> int:
        """D."""
        return model.base.last_linear[1].in_features

    def of(self, passes: Passes, batch: Batch) -> Tensor:
        """U x D, float32."""
        caught: list[Tensor] = []
        _, linear = passes.base.last_linear
        hook = linear.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0].detach().float()))
        with hook, torch.no_grad():
            passes.logits(batch)
        (states,) = caught
        return states[batch[ANSWERED]] if ANSWERED in batch else states


def slice_features(
    model: Model,
    contents: EncodedSlice,
    encoder: Encoder,
    features: FeatureMap | HeadInputs,
    *,
    batch_size: int,
    progress: Progress = silent,
) -> tuple[Tensor, Tensor]:
    """A slice's features, U x D in float32, and its targets, a row each; the shortest record first. On the CPU.

    Within `exact_numerics`, with the blocks of the model on.
    """
    found, targets = [torch.zeros(0, features.width(model))], list[Tensor]()
    for numbers, batch in encoder.batches(contents.records, contents.lengths, batch_size, model.base.device):
        found.append(features.of(model.passes, batch).cpu())
        targets += [contents.targets[number] for number in numbers]
        progress(WorkStep(count=len(numbers)))
    return torch.cat(found), torch.cat(targets) if targets else torch.zeros(0)
