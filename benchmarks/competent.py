"""The same procedure as a competent user writes it: a loop of one's own, in bfloat16, with little padding.

As `benchmarks.plain` (block k and the head on slices 1..k, the blocks above on and frozen), with autocast to bfloat16
and frozen matrices kept in bfloat16; with batches of texts of similar length, grouped as `transformers` does it (50
batches are drawn, sorted and cut); with fused AdamW, and eager attention, the fastest on a CPU in bfloat16; without
dropout of the base model, as s3t has none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import datasets
import torch
from torch import Tensor, nn
from transformers import (
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedModel,
    default_data_collator,
    get_linear_schedule_with_warmup,
)

from benchmarks.plain import Plain, Told, add_block, answers_of, load

GROUPED = 50
"""Batches that are drawn at random, sorted by length and cut, as by `transformers`' LengthGroupedSampler."""


def train_orders(
    plain: Plain,
    slices: Sequence[datasets.Dataset],
    orders: Sequence[Sequence[int]],
    *,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_step: Told = lambda records: None,
) -> list[PreTrainedModel]:
    """Train every order on its own, as `plain.train_orders` does."""
    models = []
    for order in orders:
        model, head = load(plain, attention="eager")
        for depth in range(1, len(order) + 1):
            on_stage(f"stage {tuple(order[:depth])}")
            own = add_block(model, depth, plain.adapter, head=head)
            _store_frozen_matrices_in_bfloat16(model)
            records = datasets.concatenate_datasets([slices[index] for index in order[:depth]])
            train_stage(model, own, records, plain, on_step=on_step)
        models.append(model)
    return models


def train_stage(
    model: PreTrainedModel,
    own: Sequence[nn.Parameter],
    records: datasets.Dataset,
    plain: Plain,
    *,
    on_step: Told = lambda records: None,
) -> None:
    """Train what is trainable on the records of a prefix, in bfloat16."""
    training, collate = plain.training, _collator(plain)
    size, epochs = training["batch_size"], training["epochs"]
    total = epochs * math.ceil(len(records) / size)
    optimizer = torch.optim.AdamW(own, lr=training["learning_rate"], weight_decay=0.0, fused=True)
    schedule = get_linear_schedule_with_warmup(optimizer, math.ceil(training["warmup"] * total), total)
    examples, random = list(records), torch.Generator().manual_seed(training["seed"])
    lengths = None if plain.images else [len(example["input_ids"]) for example in examples]
    device = next(model.parameters()).device
    model.eval()  # no dropout, which s3t has not either; gradients flow all the same
    for _ in range(epochs):
        for numbers in batches(len(examples), lengths, size=size, random=random):
            batch = {name: value.to(device) for name, value in collate([examples[n] for n in numbers]).items()}
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(**batch).loss
            loss.backward()
            nn.utils.clip_grad_norm_(own, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            on_step(len(numbers))


def batches(count: int, lengths: Sequence[int] | None, *, size: int, random: torch.Generator) -> Iterator[list[int]]:
    """Numbers of the records of each batch of an epoch, in random order; those of a batch have similar lengths.

    Args:
        count: of the records.
        lengths: in tokens; None: they have none.
        size: of a batch.
        random: is drawn from.

    >>> found = list(batches(7, [7, 6, 5, 4, 3, 2, 1], size=3, random=torch.Generator().manual_seed(0)))
    >>> sorted(len(numbers) for numbers in found), sorted(sum(found, []))
    ([1, 3, 3], [0, 1, 2, 3, 4, 5, 6])
    """
    order = torch.randperm(count, generator=random).tolist()
    if lengths is not None:
        pools = [order[begin : begin + GROUPED * size] for begin in range(0, count, GROUPED * size)]
        order = [number for pool in pools for number in sorted(pool, key=lengths.__getitem__, reverse=True)]
    cut = [order[begin : begin + size] for begin in range(0, count, size)]
    for index in torch.randperm(len(cut), generator=random).tolist():
        yield cut[index]


def answers(model: PreTrainedModel, records: datasets.Dataset, plain: Plain) -> list[Any]:
    """The label of every record, or its number, as the model has it."""
    collate, examples, found = _collator(plain), list(records), []
    device = next(model.parameters()).device
    model.eval()
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16):
        for begin in range(0, len(examples), 64):
            batch = {name: value.to(device) for name, value in collate(examples[begin : begin + 64]).items()}
            found += answers_of(model(**batch).logits.float().cpu().numpy(), plain)
    return found


def _store_frozen_matrices_in_bfloat16(model: PreTrainedModel) -> None:
    """Or autocast would cast them again at every step. Adapters, which were trained in float32, stay so."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear) and not module.weight.requires_grad and ".lora_" not in name:
            module.to(torch.bfloat16)


def _collator(plain: Plain) -> Callable[[Any], Mapping[str, Tensor]]:
    collate: Callable[[Any], Mapping[str, Tensor]] = (
        default_data_collator if plain.images else DataCollatorWithPadding(AutoTokenizer.from_pretrained(plain.folder))
    )
    return collate
