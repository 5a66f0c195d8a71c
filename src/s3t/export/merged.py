"""A chain folded into the base model: a whole model that transformers loads, with its tokenizer or image processor."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from s3t.errors import StorageError
from s3t.models.base import PooledModel, quiet
from s3t.models.blocks import BlockTensors, Model
from s3t.models.encoders import Encoder
from s3t.models.language import LanguageEncoder, dated
from s3t.models.source import files_that_matter

_NOT_COPIED = (".safetensors", ".safetensors.index.json")
"""Ends of names: of the base's weights."""


def write_merged(
    model: Model,
    blocks: BlockTensors,
    to: Path,
    *,
    base: Path,
    bare: Any,
    encoder: Encoder,
    labels: Sequence[str],
    head: Mapping[str, Tensor] | None = None,
) -> None:
    """Write the run's model, which no other thread uses meanwhile, with a chain in its weights.

    `labels` name the head's outputs, if there is one for each. `head` is that of transformers' classifier for a pooled
    model; without it, the backbone alone is written.
    """
    whole: Any = model.base.model
    try:
        with model.mounted(blocks), quiet():
            tensors, saved = _as_transformers_has_them(whole, bare), whole
            if isinstance(whole, PooledModel):
                prefix = f"{whole.base_model_prefix}."
                tensors = {name: value for name, value in tensors.items() if name.startswith(prefix)}
                if head is None:
                    tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
                    saved = whole.backbone
                else:
                    bare.config, tensors, saved = whole.config, tensors | dict(head), bare
            saved.save_pretrained(to, state_dict=tensors)
    except SafetensorError as error:  # a full disk
        raise StorageError(f"writing the merged model to {to} failed: {error}", remedy="free space") from error
    if len(labels) == whole.config.num_labels:
        config = json.loads((to / "config.json").read_text())
        config["id2label"] = {str(number): label for number, label in enumerate(labels)}
        config["label2id"] = {label: number for number, label in enumerate(labels)}
        _write_json(to / "config.json", config)
    copy_beside(base, to)
    if isinstance(encoder, LanguageEncoder):
        _write_as_the_run(to, encoder)
    processor = getattr(encoder, "processor", None)
    if processor is not None and not (to / "preprocessor_config.json").exists():
        processor.save_pretrained(to)  # of the recipe's mean and std: the base has none


def _write_as_the_run(to: Path, encoder: LanguageEncoder) -> None:
    """Let a text end where the run's ends, and chat templates write its date."""
    settings = to / "generation_config.json"
    content = json.loads(settings.read_text()) if settings.is_file() else {}
    ends = sorted(encoder.ends(content.get("eos_token_id")))
    _write_json(settings, content | {"eos_token_id": ends if len(ends) > 1 else ends[0]})
    if encoder.date is None:
        return
    for path in (*to.glob("*.jinja"), *to.glob("additional_chat_templates/*.jinja")):
        path.write_text(dated(path.read_text(encoding="utf-8"), encoder.date), encoding="utf-8")
    config = to / "tokenizer_config.json"
    content = json.loads(config.read_text(encoding="utf-8"))
    if content.get("chat_template"):
        _write_json(config, content | {"chat_template": dated(content["chat_template"], encoder.date)})


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def copy_beside(base: Path, to: Path, *, but: Collection[str] = ()) -> None:
    """Copy the base's files that are no weights, nor there already, nor of some names; tokenizers cut as the run's."""
    for path in files_that_matter(base):
        place = to / path.relative_to(base)
        if not path.name.endswith(_NOT_COPIED) and path.name not in but and not place.exists():
            place.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, place)
    config, tokenizer = to / "tokenizer_config.json", to / "tokenizer.json"
    settings, own = (json.loads(path.read_text("utf-8")) if path.is_file() else {} for path in (config, tokenizer))
    side = settings.get("truncation_side") or (own.get("truncation") or {}).get("direction", "right")
    if side.lower() != "right":
        _write_json(config, settings | {"truncation_side": "right"})


def _as_transformers_has_them(model: nn.Module, bare: nn.Module) -> dict[str, Tensor]:
    """The model's tensors; those that were turned at loading (a `Conv1D` keeps its weight transposed) as they were."""
    tensors = dict(model.state_dict())
    for name, module in bare.named_modules():
        if isinstance(module, Conv1D) and isinstance(model.get_submodule(name), nn.Linear):
            tensors[f"{name}.weight"] = tensors[f"{name}.weight"].t().contiguous()
    return tensors
