"""Floating-point operations of a training step, counted by torch as it makes them, on tensors without values.

Counted are matrix products, forward and backward, attention's among them; what an implementation computes twice (a
fused attention does in its backward pass) counts once. A multiplication and an addition are two operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from benchmarks.plain import add_block
from s3t.models.layers import find_layers
from s3t.models.passes import cut_modules, first_tokens


def cache_bound(depths: Iterable[int], *, layers: int, width: int) -> float:
    """Layer passes of an epoch without a trunk cache, over those with one, if a pass backward costs one forward.

    Args:
        depths: of the stages; that of depth i has i slices.
        layers: of the model.
        width: layers of a block.

    >>> cache_bound([1], layers=6, width=2), round(cache_bound([1, 2, 3], layers=6, width=2), 3)
    (2.0, 1.143)
    """
    passes = [(depth * (layers + depth * width), 2 * depth**2 * width) for depth in depths]
    return sum(without for without, _ in passes) / sum(cached for _, cached in passes)


@dataclass(frozen=True, kw_only=True)
class StepFlops:
    """Operations of one step of a stage.

    Attributes:
        whole: forward pass through all layers, backward pass as far as the block.
        trunk: those of the forward pass through the layers below the block, which a cache saves.
    """

    whole: int
    trunk: int


def step_flops(
    make_model: Callable[[], PreTrainedModel],
    inputs: Mapping[str, tuple[int, ...]],
    *,
    depth: int,
    adapter: Mapping[str, Any],
    first_token: bool = False,
) -> StepFlops:
    """Operations of a step of a stage of some depth.

    Args:
        make_model: makes the bare model, in eager attention; called with the meta device as the default.
        inputs: the shape of each input of a batch.
        depth: of the stage; block `depth` is trained, those above are on and frozen.
        adapter: rank, alpha, target_modules, layers_per_slice.
        first_token: the last layer is passed for the first token alone, as s3t does (`training.shortcuts`).
    """
    with torch.device("meta"):
        model = make_model()
        backbone = f"{model.base_model_prefix}."
        head = [name for name, _ in model.named_parameters() if not name.startswith(backbone)]
        for block in range(1, depth + 1):
            add_block(model, block, adapter, head=head)
        batch = {
            name: torch.empty(shape, dtype=torch.float32 if name == "pixel_values" else torch.int64)
            for name, shape in inputs.items()
        }
        layers = find_layers(model, model.config.num_hidden_layers)
        first = model.config.num_hidden_layers - depth * adapter["layers_per_slice"]
        counter = FlopCounterMode(display=False)
        last = model.get_submodule(f"{layers}.{model.config.num_hidden_layers - 1}")
        with counter, first_tokens(cut_modules(last) if first_token else (), None):
            model(**batch).logits.sum().backward()
    by_module = counter.get_flop_counts()
    root = type(model).__name__
    trunk = sum(sum(by_module[f"{root}.{layers}.{index}"].values()) for index in range(first))
    return StepFlops(whole=counter.get_total_flops(), trunk=trunk)
