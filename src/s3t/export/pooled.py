"""A linear head on pooled states, for programs that know transformers' classifiers, or sentence-transformers.

A classifier of transformers computes the same where it pools alike, and where at most a dense layer with a tanh lies
between: a tanh of small numbers is linear. Whether that is so is tried out. Else the export is a folder of
sentence-transformers: backbone, pooling, and the head as its dense module, whose "embedding" is the logits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutputWithPoolingAndCrossAttentions

from s3t.models.base import Pooling, last_linear, pooled

_SMALL = 2.0**-12
"""Scale of what enters a tanh: it then departs from a line by less than float32 rounds, up to states of about 4."""

_MODES: Mapping[Pooling, str] = {"first": "cls_token", "mean": "mean_tokens", "last": "lasttoken"}
"""Ends of the names of sentence-transformers' settings."""


def head_for_transformers(classifier: Any, head: Mapping[str, Tensor], pooling: Pooling) -> dict[str, Tensor] | None:
    """The head's tensors by the names of transformers' classifier (of `bare_model`); None where it cannot compute the
    same. `head` is one linear module, by the names of `PooledModel`.
    """
    linear = linear_of(head)
    tensors = _tensors(classifier, linear)
    return tensors if tensors is not None and _same(classifier, tensors, linear, pooling) else None


def linear_of(head: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weight and bias of the linear module."""
    return {name.rpartition(".")[2]: value for name, value in head.items()}


def _tensors(classifier: Any, linear: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    prefix = classifier.base_model_prefix
    last = last_linear(classifier)
    own = {
        name: module
        for name, module in classifier.named_modules()
        if isinstance(module, nn.Linear) and (not name.startswith(f"{prefix}.") or name.startswith(f"{prefix}.pooler."))
    }
    (end,) = (name for name, module in own.items() if module is last)
    between = [name for name in own if name != end]
    tensors = {f"{end}.{leaf}": value for leaf, value in linear.items()}
    normalised = any(isinstance(module, nn.LayerNorm) for module in classifier.base_model.modules())  # so are small
    if normalised and len(between) == 1 and own[between[0]].weight.shape == (last.in_features, last.in_features):
        tensors[f"{end}.weight"] = linear["weight"] / _SMALL
        tensors[f"{between[0]}.weight"] = torch.eye(last.in_features) * _SMALL
        tensors[f"{between[0]}.bias"] = torch.zeros(last.in_features)
    elif between:
        return None
    return tensors


def _same(classifier: Any, tensors: Mapping[str, Tensor], linear: Mapping[str, Tensor], pooling: Pooling) -> bool:
    """True if the classifier gives the head's logits to states of two texts, of three tokens and of five."""
    pad = 0 if classifier.config.pad_token_id is None else classifier.config.pad_token_id
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    inputs = {"input_ids": torch.where(mask.bool(), pad + 1, pad), "attention_mask": mask}
    states = torch.randn(2, 5, linear["weight"].shape[1], generator=torch.Generator().manual_seed(0))
    wanted = nn.functional.linear(pooled(states, mask, pooling), linear["weight"], linear.get("bias"))
    prefix, backbone = classifier.base_model_prefix, classifier.base_model
    try:
        setattr(classifier, prefix, _Given(states, getattr(backbone, "pooler", None)))
        tried = deepcopy(classifier).to_empty(device="cpu").eval()
    finally:
        setattr(classifier, prefix, backbone)
    if {name for name, _ in tried.named_parameters()} != tensors.keys():
        return False  # something else lies between
    tried.load_state_dict(tensors)
    tried.config.pad_token_id = pad
    try:
        with torch.no_grad():
            given = tried(**inputs).logits
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError):
        return False  # it reads more than a backbone's states
    return given.shape == wanted.shape and torch.allclose(given, wanted, rtol=1e-4, atol=1e-4 * float(wanted.std()))


class _Given(nn.Module):
    """A backbone that returns the same states whatever it gets."""

    def __init__(self, states: Tensor, pooler: nn.Module | None) -> None:
        super().__init__()
        self._states = SimpleNamespace(states=states)
        self.pooler = pooler

    def forward(self, *_: Any, **__: Any) -> BaseModelOutputWithPoolingAndCrossAttentions:
        states = self._states.states
        return BaseModelOutputWithPoolingAndCrossAttentions(
            last_hidden_state=states, pooler_output=None if self.pooler is None else self.pooler(states)
        )


def sentence_files(linear: Mapping[str, Tensor], pooling: Pooling, *, max_length: int) -> dict[str, bytes]:
    """Files of sentence-transformers beside those of the backbone, by path: pooling, and the head as a dense module."""
    outputs, width = linear["weight"].shape
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate((("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")))
    ]
    documents: dict[str, Any] = {
        "modules.json": modules,
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": width,
            **{f"pooling_mode_{name}": name == _MODES[pooling] for name in _MODES.values()},
        },
        "2_Dense/config.json": {
            "in_features": width,
            "out_features": outputs,
            "bias": "bias" in linear,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
    }
    tensors = {f"linear.{leaf}": value.float().contiguous() for leaf, value in sorted(linear.items())}
    files = {name: (json.dumps(content, indent=2) + "\n").encode() for name, content in documents.items()}
    return files | {"2_Dense/model.safetensors": safetensors.torch.save(tensors, metadata={"format": "pt"})}
