"""The plain procedure: slice-wise fine-tuning as one writes it with `transformers.Trainer` and PEFT, and nothing more.

Stage k trains block k and the head on slices 1..k, with the blocks above on and frozen: the same data, batch size,
epochs, adapter, optimiser and schedule as s3t. Every step is a whole forward pass in float32; every batch is padded to
its longest record; every order is trained on its own, from the checkpoint; the model is in training mode, so its own
dropout is on, as Trainer has it.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
import transformers
from peft import LoraConfig, inject_adapter_in_model
from peft.tuners.tuners_utils import BaseTunerLayer
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss
from transformers import (
    AutoConfig,
    AutoImageProcessor,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTImageProcessorPil,
    default_data_collator,
)
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.trainer_callback import PrinterCallback, TrainerState

from s3t.models.base import PooledModel, made_for
from s3t.models.layers import find_layers

Told = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Plain:
    """What a stage is trained with; the fields are those of the recipe.

    Attributes:
        folder: of the base model and its tokenizer.
        labels: the label set, in order; of a regression, none.
        adapter: rank, alpha, target_modules, layers_per_slice.
        training: epochs, batch_size, learning_rate, warmup, seed.
        max_length: tokens a text.
        dropout: whether the base model's own dropout is on.
        images: whether the features are images.
    """

    folder: Path
    labels: Sequence[str]
    adapter: Mapping[str, Any]
    training: Mapping[str, Any]
    max_length: int = 128
    dropout: bool = True
    images: bool = False


def train_orders(
    plain: Plain,
    slices: Sequence[datasets.Dataset],
    orders: Sequence[Sequence[int]],
    *,
    attention: str | None = None,
    train: Callable[..., None] | None = None,
    on_stage: Callable[[str], None] = lambda stage: None,
    on_step: Told = lambda records: None,
) -> list[PreTrainedModel]:
    """Train every order on its own; the model of each, all its blocks on.

    Args:
        plain: how.
        slices: records, see `encoded`.
        orders: permutations of the slices.
        attention: the kernel's name; None: transformers' choice.
        train: trains a stage, with the parameters of `train_stage`; None: that.
        on_stage: told each stage when it begins.
        on_step: told the number of records of each step.
    """
    models = []
    for order in orders:
        model, head = load(plain, attention=attention)
        for depth in range(1, len(order) + 1):
            on_stage(f"stage {tuple(order[:depth])}")
            own = add_block(model, depth, plain.adapter, head=head)
            records = datasets.concatenate_datasets([slices[index] for index in order[:depth]])
            (train or train_stage)(model, own, records, plain, on_step=on_step)
        models.append(model)
    return models


def load(plain: Plain, *, attention: str | None = None) -> tuple[Any, list[str]]:
    """The base model with a fresh head, and the names of the head's parameters: all that the checkpoint lacks.

    Args:
        plain: how.
        attention: the kernel's name; None: transformers' choice.
    """
    config = AutoConfig.from_pretrained(plain.folder, num_labels=len(plain.labels) or 1)
    if not plain.dropout:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(plain.training["seed"])
    auto = (
        transformers.AutoModelForImageClassification
        if plain.images
        else transformers.AutoModelForSequenceClassification
    )
    model, info = auto.from_pretrained(
        plain.folder,
        config=config,
        dtype=torch.float32,
        attn_implementation=attention,
        ignore_mismatched_sizes=True,  # the checkpoint may have a head for other labels
        output_loading_info=True,
    )
    lacking = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
    if plain.images:
        return model, sorted(lacking)
    pooled = PooledClassifier(model, made_for(plain.folder, config))
    backbone = f"{pooled.base_model_prefix}."
    return pooled, sorted(
        name for name, _ in pooled.named_parameters() if name in lacking or not name.startswith(backbone)
    )


class PooledClassifier(PooledModel):
    """The pooling that the base model was made for and a linear head, with the loss that Trainer asks for."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        types = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        logits = super().forward(input_ids=input_ids, attention_mask=attention_mask, **types).logits
        if labels is None:
            return SequenceClassifierOutput(logits=logits)
        loss = cross_entropy(logits, labels) if labels.dtype == torch.int64 else mse_loss(logits[:, 0], labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)


def add_block(
    model: PreTrainedModel, depth: int, adapter: Mapping[str, Any], *, head: Sequence[str]
) -> list[nn.Parameter]:
    """Put the next block on and freeze all but it and the head; the parameters that stay trainable.

    Args:
        model: with the blocks above it on.
        depth: which block, 1 at the top.
        adapter: rank, alpha, target_modules, layers_per_slice.
        head: names of the head's parameters.
    """
    width = adapter["layers_per_slice"]
    first = model.config.num_hidden_layers - depth * width
    config = LoraConfig(
        r=adapter["rank"],
        lora_alpha=adapter["alpha"],
        target_modules=list(adapter["target_modules"]),
        layers_to_transform=list(range(first, first + width)),
        layers_pattern=find_layers(model, model.config.num_hidden_layers).rpartition(".")[2],
    )
    if hasattr(model, "peft_config"):
        del model.peft_config  # or PEFT warns of a second adapter
    inject_adapter_in_model(config, model, adapter_name=f"block{depth}")
    for module in model.modules():
        if isinstance(module, BaseTunerLayer):
            module.set_adapter([name for name in module.lora_A if name.startswith("block")])
    model.requires_grad_(False)
    own = [value for name, value in model.named_parameters() if name in head or f".block{depth}." in name]
    for parameter in own:
        parameter.requires_grad_(True)
    return own


def train_stage(
    model: PreTrainedModel,
    own: Sequence[nn.Parameter],
    records: datasets.Dataset,
    plain: Plain,
    *,
    on_step: Told = lambda records: None,
) -> None:
    """Train what is trainable on the records of a prefix, in float32."""
    if sum(value.numel() for value in model.parameters() if value.requires_grad) != sum(v.numel() for v in own):
        raise RuntimeError("the plain procedure is broken: something else than the block and the head is trainable")
    training = plain.training
    with tempfile.TemporaryDirectory() as folder:
        trainer = _trainer(model, plain, folder, train_dataset=records, callbacks=[_Steps(on_step, len(records))])
        trainer.train()
    if trainer.state.global_step != training["epochs"] * -(-len(records) // training["batch_size"]):
        raise RuntimeError("the plain procedure is broken: Trainer did not make a step for every batch")


def logits(model: PreTrainedModel, records: datasets.Dataset, plain: Plain) -> Any:
    """Of every record: records x outputs."""
    with tempfile.TemporaryDirectory() as folder:
        return _trainer(model, plain, folder).predict(records).predictions


def features(plain: Plain, records: datasets.Dataset) -> Any:
    """What the head reads of the bare base model: records x width."""
    model, head = load(plain)
    read: list[Any] = []
    module = model.get_submodule(head[0].rpartition(".")[0])
    module.register_forward_pre_hook(lambda _module, inputs: read.append(inputs[0].numpy(force=True)))
    logits(model, records, plain)
    return np.concatenate(read)


def answers_of(logits: Any, plain: Plain) -> list[Any]:
    """Labels, or numbers, of logits: records x outputs."""
    if not plain.labels:
        return [float(number) for number in logits[:, 0]]
    return [plain.labels[number] for number in logits.argmax(-1)]


def encoded(plain: Plain, features: Sequence[Any], labels: Sequence[str]) -> datasets.Dataset:
    """Records as Trainer takes them: token ids without padding, or pixels; and the label's index.

    Args:
        plain: how.
        features: texts, pairs of texts, or the bytes of images.
        labels: of the records.
    """
    index = {label: number for number, label in enumerate(plain.labels)}
    targets = [index[label] for label in labels] if plain.labels else [float(label) for label in labels]
    columns: dict[str, Any]
    if plain.images:
        channels = AutoConfig.from_pretrained(plain.folder).num_channels
        mode, processor = "L" if channels == 1 else "RGB", image_processor(plain.folder)
        images = [Image.open(io.BytesIO(content)).convert(mode) for content in features]
        columns = {"pixel_values": list(processor(images, return_tensors="np")["pixel_values"])}
    else:
        tokenizer = AutoTokenizer.from_pretrained(plain.folder)
        columns = dict(tokenizer(list(features), truncation=True, max_length=plain.max_length))
    found = datasets.Dataset.from_dict(columns | {"labels": targets})
    return found.with_format("torch") if plain.images else found


def image_processor(folder: Path) -> Any:
    """The checkpoint's own; of one without, pixels from -1 to 1 at the model's size."""
    if (folder / "preprocessor_config.json").is_file():
        return AutoImageProcessor.from_pretrained(folder, backend="pil")
    config = AutoConfig.from_pretrained(folder)
    mean = [0.5] * config.num_channels
    size = {"height": config.image_size, "width": config.image_size}
    return ViTImageProcessorPil(size=size, image_mean=mean, image_std=mean)


def collator(plain: Plain, *, multiple: int | None = None) -> Callable[[Any], Mapping[str, Any]]:
    """Makes a batch of records: pads texts to the longest, or to a multiple of some tokens; stacks pixels."""
    collate: Callable[[Any], Mapping[str, Any]] = (
        default_data_collator
        if plain.images
        else DataCollatorWithPadding(AutoTokenizer.from_pretrained(plain.folder), pad_to_multiple_of=multiple)
    )
    return collate


def _trainer(model: PreTrainedModel, plain: Plain, folder: str, **options: Any) -> Trainer:
    training = plain.training
    arguments = TrainingArguments(
        output_dir=folder,
        num_train_epochs=training["epochs"],
        per_device_train_batch_size=training["batch_size"],
        per_device_eval_batch_size=64,
        learning_rate=training["learning_rate"],
        lr_scheduler_type="linear",
        warmup_steps=training["warmup"],  # below 1: a share of all steps
        weight_decay=0.0,
        max_grad_norm=1.0,
        seed=training["seed"],
        use_cpu=not torch.cuda.is_available(),
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Trainer(model, arguments, data_collator=collator(plain), **options)
    trainer.remove_callback(PrinterCallback)  # it prints the time on stdout, which is the JSON document's
    return trainer


class _Steps(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Tells of every optimiser step how many records it took."""

    def __init__(self, told: Told, records: int) -> None:
        self._told, self._records = told, records

    def on_step_end(self, args: TrainingArguments, state: TrainerState, *_: Any, **__: Any) -> None:
        size = args.per_device_train_batch_size
        before = (state.global_step - 1) % -(-self._records // size) * size
        self._told(min(size, self._records - before))
