"""A chain as an adapter that PEFT loads: its configuration and its tensors.

Target modules are named in full: PEFT takes an empty `layers_to_transform` for all layers. The trained head goes into
`modules_to_save`. PEFT itself, on a model without memory, says which tensors it will look for.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from peft import PeftConfig, get_peft_model, get_peft_model_state_dict
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from s3t.errors import InputError, itemised
from s3t.models.base import ALONE
from s3t.models.blocks import BlockTensors
from s3t.models.layers import feedforward_modules
from s3t.models.source import load_config
from s3t.recipe import Adapter

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_TASK_TYPES: Mapping[str, str] = {
    "AutoModelForSequenceClassification": "SEQ_CLS",
    "AutoModelForTokenClassification": "TOKEN_CLS",
    "AutoModelForCausalLM": "CAUSAL_LM",
    "AutoModel": "FEATURE_EXTRACTION",
}
"""PEFT's task types by class of model; it has none for images."""


@dataclass(frozen=True, kw_only=True)
class PeftAdapter:
    """An adapter as PEFT names its parts."""

    config: Mapping[str, Any]
    """Content of `adapter_config.json`."""
    tensors: Mapping[str, Tensor]
    """By PEFT's name."""

    def files(self) -> dict[str, bytes]:
        tensors = {name: self.tensors[name].contiguous() for name in sorted(self.tensors)}
        return {
            CONFIG: (json.dumps(self.config, indent=2, sort_keys=True) + "\n").encode(),
            TENSORS: safetensors.torch.save(tensors, metadata={"format": "pt"}),
        }


def bare_model(folder: Path, auto_class: str, *, labels: int | None) -> Any:
    """The architecture as transformers makes it, without values. `labels`: outputs of its head, if the configuration
    does not say so.
    """
    config = load_config(folder)
    if labels is not None:
        config.num_labels = labels
    with ALONE, torch.device("meta"):
        made: nn.Module = getattr(transformers, auto_class).from_config(config)
    return made


def peft_adapter(
    model: nn.Module, adapter: Adapter, blocks: BlockTensors, *, auto_class: str, base: str, revision: str | None
) -> PeftAdapter:
    *_, last = blocks.values()
    block = {name: value for tensors in blocks.values() for name, value in tensors.block.items()}
    targets = sorted({name.partition("/")[0] for name in block})
    config = {
        "peft_type": "IA3" if adapter.kind == "ia3" else "LORA",
        "task_type": _TASK_TYPES.get(auto_class),
        "base_model_name_or_path": base,
        "revision": revision,
        "inference_mode": True,
        "target_modules": targets,
        "modules_to_save": sorted(head_modules(model, last.head)) or None,
        "fan_in_fan_out": any(isinstance(model.get_submodule(name), Conv1D) for name in targets),
        **_of_kind(adapter, targets),
    }
    tensors = {_PREFIX + _peft_name(name): value for name, value in block.items()}
    tensors |= {_PREFIX + name: value for name, value in last.head.items()}
    _check_names(model, config, tensors)
    return PeftAdapter(config=config, tensors=tensors)


def head_modules(model: nn.Module, head: Iterable[str]) -> list[str]:
    """Full names of the outermost modules of which every parameter belongs to the head."""
    names = set(head)

    def outermost(module: nn.Module, path: str) -> list[str]:
        own = {f"{path}{name}" for name, _ in module.named_parameters()}
        if path and own and own <= names:
            return [path.removesuffix(".")]
        return [found for name, child in module.named_children() for found in outermost(child, f"{path}{name}.")]

    return outermost(model, "")


def _of_kind(adapter: Adapter, targets: list[str]) -> dict[str, Any]:
    if adapter.kind == "ia3":
        return {"feedforward_modules": feedforward_modules(targets, adapter), "init_ia3_weights": True}
    return {
        "r": adapter.rank,
        "lora_alpha": whole(adapter.alpha),
        "lora_dropout": adapter.dropout,
        "use_rslora": adapter.use_rslora,
        "use_dora": adapter.use_dora,
        "bias": "none",
        "init_lora_weights": True,  # whatever values a new adapter has, the file's take their place
    }


def with_plain_scale(config: Mapping[str, Any]) -> dict[str, Any]:
    """Configuration that gives an rsLoRA adapter its scale, alpha / sqrt(r), in programs that ignore `use_rslora`."""
    if not config.get("use_rslora"):
        return dict(config)
    return {**config, "lora_alpha": whole(config["lora_alpha"] * math.sqrt(config["r"])), "use_rslora": False}


def whole(number: float) -> float | int:
    """A whole number as an integer: some readers declare alpha as one.

    >>> whole(16.0), whole(2.5)
    (16, 2.5)
    """
    return int(number) if float(number).is_integer() else number


def _peft_name(name: str) -> str:
    """PEFT's name of a block's tensor; it stores DoRA's magnitudes without the last part."""
    full = name.replace("/", ".")
    return full.removesuffix(".weight") if full.endswith("lora_magnitude_vector.weight") else full


def _check_names(model: nn.Module, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Compare tensors with those that PEFT makes room for when it reads the configuration."""
    with ALONE, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old names in libraries; errors are still raised
        # A copy: PEFT adds names to a list that it is given.
        made = get_peft_model(model, PeftConfig.from_peft_type(**deepcopy(dict(config))), low_cpu_mem_usage=True)
        wanted = {
            name: tuple(value.shape)
            for name, value in get_peft_model_state_dict(made, save_embedding_layers=False).items()
        }
    given = {name: tuple(value.shape) for name, value in tensors.items()}
    lacking = [f"PEFT looks for {name}, which no stage has trained" for name in sorted(wanted.keys() - given.keys())]
    stray = [f"PEFT has no room for {name}, which was trained" for name in sorted(given.keys() - wanted.keys())]
    wrong = [
        f"{name} is {given[name]}, and PEFT looks for {wanted[name]}"
        for name in sorted(given.keys() & wanted.keys())
        if given[name] != wanted[name]
    ]
    if problems := lacking + stray + wrong:
        raise InputError(
            "the export", f"PEFT cannot hold this chain as an adapter; export it merged:{itemised(problems)}"
        )
