"""The same procedure as a competent user writes it: a loop of one's own, in the run's precision, with little padding.

As `benchmarks.plain` (block k and the head on slices 1..k, the blocks above on and frozen); where s3t takes bfloat16,
with autocast and all frozen weights in bfloat16; with batches of texts of similar length, by `transformers`' own
sampler, padded to multiples of 8; with fused AdamW, and eager attention on a CPU, where it is the fastest in bfloat16;
without dropout of the base model, as s3t has none. With `shortcuts: []`, batches of texts are drawn at random, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import datasets
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, Sampler
from transformers import PreTrainedModel, get_linear_schedule_with_warmup
from transformers.trainer_pt_utils import LengthGroupedSampler

from benchmarks.plain import Plain, Told, collator


def train_stage(
    model: PreTrainedModel,
    own: Sequence[nn.Parameter],
    records: datasets.Dataset,
    plain: Plain,
    *,
    on_step: Told = lambda records: None,
) -> None:
    """Train what is trainable on the records of a prefix. For `plain.train_orders`."""
    training, device = plain.training, torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    if _half(plain):
        _store_frozen_weights_in_bfloat16(model)
    size, epochs, random = training["batch_size"], training["epochs"], torch.Generator().manual_seed(training["seed"])
    examples: Any = list(records)  # read once: a row of the data set is made anew each time
    order: Sampler[int] = (
        RandomSampler(examples, generator=random)
        if plain.images or training["shortcuts"] == []
        else LengthGroupedSampler(size, dataset=examples, generator=random)
    )
    loader: DataLoader[Any] = DataLoader(examples, size, sampler=order, collate_fn=collator(plain, multiple=8))
    total = epochs * len(loader)
    optimizer = torch.optim.AdamW(own, lr=training["learning_rate"], weight_decay=0.0, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(training["warmup"] * total), total)
    model.eval()  # no dropout, which s3t has not either; gradients flow all the same
    for _ in range(epochs):
        for batch in loader:
            with torch.autocast(device.type, torch.bfloat16, enabled=_half(plain)):
                loss = model(**{name: value.to(device) for name, value in batch.items()}).loss
            loss.backward()
            nn.utils.clip_grad_norm_(own, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            on_step(len(batch["labels"]))


def logits(model: PreTrainedModel, records: datasets.Dataset, plain: Plain) -> Any:
    """Of every record: records x outputs."""
    examples: Any = list(records)
    device, found = next(model.parameters()).device, []
    model.eval()
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=_half(plain)):
        for batch in DataLoader(examples, 64, collate_fn=collator(plain)):
            found.append(model(**{name: value.to(device) for name, value in batch.items()}).logits.float().cpu())
    return torch.cat(found).numpy()


def _half(plain: Plain) -> bool:
    return bool(plain.training["precision"] == "bfloat16")


def _store_frozen_weights_in_bfloat16(model: PreTrainedModel) -> None:
    """Or autocast would cast them again at every step. Adapters, which were trained in float32, stay so."""
    for name, value in model.named_parameters():
        if not value.requires_grad and ".lora_" not in name:
            value.data = value.data.to(torch.bfloat16)
