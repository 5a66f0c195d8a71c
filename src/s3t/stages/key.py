"""A stage's key: the keyed hash of everything that decides its tensors.

    key = HMAC(stage key of the secret, base model's digest, training part of the recipe with every `auto` resolved,
               shard, prefix, slice digests, parent's key)

What does not change a stage's tensors (budget, selector, device, ensemble, column names) is not in it.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from s3t.partition import Secret
from s3t.recipe import Recipe
from s3t.stages.trie import Stage


def stage_seed(run_seed: int, stage: Stage, purpose: str) -> int:
    """A seed below 2^63 for one purpose ("head", "block", "dropout", "batches 0", ...) of one stage."""
    text = f"s3t seed {run_seed} shard {stage.shard} prefix {list(stage.prefix)} {purpose}"
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1


KEY_FORMAT = 8
"""Raised when the meaning of the inputs or the training procedure changes: old keys then match no new stage."""


_NO_BITS = {"device", "cache_memory", "cache_disk", "checkpointing"}
"""Fields of the training part that change no bits."""


@dataclass(frozen=True, kw_only=True)
class KeyInputs:
    """Key inputs that all stages of a run share."""

    secret: Secret
    base_digest: str
    """Digest of the base model's weights, configuration, and tokenizer or image processor."""
    training_part: dict[str, Any]


def training_part(recipe: Recipe, *, labels: Sequence[str], validation: str | None = None) -> dict[str, Any]:
    """The fields of a recipe that decide a stage's tensors, JSON-compatible, with every `auto` resolved: else the key
    would not say what was computed. `validation` is the digest of the public records on which stages are tried.
    """
    if left := unresolved(recipe):
        raise ValueError(f"{', '.join(left)}: not resolved")
    (unused,) = {"layers", "layers_per_slice"} - {recipe.method.width}
    return {
        "task": recipe.task.name,
        "labels": list(labels),
        "adapter": recipe.adapter.model_dump(mode="json", exclude={unused}),
        "training": recipe.training.model_dump(mode="json", exclude=_NO_BITS),
        "method": recipe.method.key_part(recipe.partition.slices),
        # The threshold decides how well public records are answered, which the manifest says.
        "validation": None if validation is None else [validation, recipe.prediction.threshold],
        **recipe.model_dump(mode="json", include={recipe.task.inputs.section}),
    }


def unresolved(recipe: Recipe) -> list[str]:
    """Fields that decide a stage's tensors and are still `auto`. `init` resolves all that its version knows."""
    training = recipe.training.model_dump(exclude=_NO_BITS)
    left = [f"training.{name}" for name, value in training.items() if value == "auto"]
    return left + (["text.pooling"] if recipe.task.pools and recipe.text.pooling == "auto" else [])


def stage_key(inputs: KeyInputs, stage: Stage, *, slice_digests: Sequence[str], parent: str | None) -> str:
    """The key of a stage, 64 hexadecimal digits. Digests are in the prefix's order; a first stage has no parent."""
    content = {
        "format": KEY_FORMAT,
        "base": inputs.base_digest,
        "training": inputs.training_part,
        "shard": stage.shard,
        "prefix": list(stage.prefix),
        "slices": list(slice_digests),
        "parent": parent,
        "kind": stage.kind,
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hmac.new(inputs.secret.key("stage"), text.encode(), sha256).hexdigest()
