"""Opponents of training language models: the same slice-wise stages by transformers' Trainer and PEFT.

plain       batches drawn at random, padded to their longest record; autocast over a base in float32.
grouped     batches of records of similar length.
bfloat16    as `grouped`, with frozen weights cast to bfloat16 once, and eager attention, the fastest on a CPU there.
packed      as `bfloat16`, but batches drawn at random, whose records share rows of at most 256 tokens: the longest
            first, each into the fullest row that has room. Positions begin anew with each record, and transformers
            masks records from each other. A step has the records that it has elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaForCausalLM, Trainer, TrainingArguments

from s3t.models.assembly import assemble
from s3t.models.layers import block_modules
from s3t.recipe import Recipe

Example: TypeAlias = dict[str, list[int]]
"""Token ids and labels of a record."""
ROW = 256
"""Tokens of a row of `packed`: the longest record's."""


def padded(examples: Sequence[Example]) -> dict[str, torch.Tensor]:
    """A batch, padded to its longest record."""
    longest = max(len(example["input_ids"]) for example in examples)
    lengths = torch.tensor([len(example["input_ids"]) for example in examples])
    mask = (torch.arange(longest) < lengths[:, None]).long()
    return {
        "input_ids": _filled([example["input_ids"] for example in examples], 0),
        "labels": _filled([example["labels"] for example in examples], -100),
        "attention_mask": mask,
    }


def packed(examples: Sequence[Example]) -> dict[str, torch.Tensor]:
    """A batch whose records share rows. Without a mask: transformers makes one where positions begin anew."""
    rows: list[list[Example]] = []
    for example in sorted(examples, key=lambda one: -len(one["input_ids"])):
        room = [row for row in rows if _length(row) + len(example["input_ids"]) <= ROW]
        if room:
            max(room, key=_length).append(example)
        else:
            rows.append([example])
    return {
        "input_ids": _filled([[token for one in row for token in one["input_ids"]] for row in rows], 0),
        "labels": _filled([[label for one in row for label in one["labels"]] for row in rows], -100),
        "position_ids": _filled([[place for one in row for place in range(len(one["input_ids"]))] for row in rows], 0),
    }


def _length(row: Sequence[Example]) -> int:
    return sum(len(example["input_ids"]) for example in row)


def _filled(rows: Sequence[list[int]], value: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


@dataclass(frozen=True, kw_only=True)
class Opponent:
    """A way to train."""

    base: torch.dtype = torch.float32
    """Of frozen weights."""
    attention: str = "sdpa"
    sampling: str = "random"
    """Trainer's `train_sampling_strategy`."""
    collate: Callable[[Sequence[Example]], dict[str, torch.Tensor]] = padded


OPPONENTS = {
    "plain": Opponent(),
    "grouped": Opponent(sampling="group_by_length"),
    "bfloat16": Opponent(sampling="group_by_length", base=torch.bfloat16, attention="eager"),
    "packed": Opponent(base=torch.bfloat16, attention="eager", collate=packed),
}


def seconds_of(opponent: Opponent, slices: Sequence[list[Example]], recipe: Recipe, folder: Path) -> list[float]:
    """CPU seconds of each stage, of the first with the loading of the model; each block is an adapter of PEFT."""
    whole, _ = assemble(Path(recipe.base_model), recipe, labels=1)  # for the names of the modules alone
    adapter = recipe.block_adapter(len(whole.base.layers))
    targets = [block_modules(whole.base.model, whole.base.path, adapter, stage + 1) for stage in range(len(slices))]
    since = time.process_time()
    model: Any = LlamaForCausalLM.from_pretrained(
        recipe.base_model, dtype=opponent.base, attn_implementation=opponent.attention
    )
    model.config.use_cache = False  # with a cache transformers would not mask packed records from each other
    seconds = []
    for stage in range(len(slices)):
        name = f"block{stage}"
        config = LoraConfig(r=adapter.rank, lora_alpha=int(adapter.alpha), target_modules=list(targets[stage]))
        if stage == 0:
            model = get_peft_model(model, config, adapter_name=name)
        else:
            model.add_adapter(name, config)
        model.base_model.set_adapter([f"block{number}" for number in range(stage + 1)])
        for parameter_name, parameter in model.named_parameters():
            parameter.requires_grad_(f".{name}." in parameter_name)
        examples = [example for part in slices[: stage + 1] for example in part]
        trainer = Trainer(
            model=model,
            args=_arguments(opponent, recipe, folder),
            train_dataset=examples,
            data_collator=opponent.collate,
        )
        trainer.train()
        seconds.append(time.process_time() - since)
        since = time.process_time()
    return seconds


def _arguments(opponent: Opponent, recipe: Recipe, folder: Path) -> TrainingArguments:
    told = recipe.training
    return TrainingArguments(
        output_dir=str(folder / "trainer"),
        per_device_train_batch_size=told.batch_size,
        num_train_epochs=told.epochs,
        learning_rate=told.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=told.warmup,
        max_grad_norm=1.0,
        bf16=True,
        use_cpu=True,
        optim="adamw_torch_fused",
        train_sampling_strategy=opponent.sampling,
        seed=told.seed,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
