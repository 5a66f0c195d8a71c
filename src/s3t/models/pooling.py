"""A text's token states as one vector, and a linear head on it.

transformers' own classifiers read the first token, mostly through a dense layer with a tanh, whatever the base model
was made for. Here the head is linear, and the pooling is the base's own. Names of the backbone's modules stay as in
transformers' classifier.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

Pooling: TypeAlias = Literal["mean", "first", "last"]

_MODES: dict[str, Pooling] = {"cls": "first", "lasttoken": "last", "mean": "mean"}
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
}


def made_for(folder: Path, config: Any) -> Pooling:
    """The pooling that a base model was made for: sentence-transformers' files or the configuration say so; else a
    causal model's last token, and any other's first.
    """
    declared = sorted(folder.glob("*_Pooling/config.json"))
    if declared:
        return _of_sentence_transformers(json.loads(declared[0].read_text()))
    if (folder / "config_sentence_transformers.json").is_file() or (folder / "sentence_bert_config.json").is_file():
        return "mean"  # sentence-transformers' own, where no module says another
    if getattr(config, "classifier_pooling", None) in ("cls", "mean"):
        return _MODES[config.classifier_pooling]
    kind = type(config)
    causal = kind in MODEL_FOR_CAUSAL_LM_MAPPING and kind not in MODEL_FOR_MASKED_LM_MAPPING
    return "last" if causal or getattr(config, "is_decoder", False) else "first"


def _of_sentence_transformers(content: dict[str, Any]) -> Pooling:
    """Pooling in a configuration of sentence-transformers, new or old form; the mean for kinds that s3t lacks."""
    said = content.get("pooling_mode") or [mode for name, mode in _OLD_MODES.items() if content.get(name)]
    modes = [said] if isinstance(said, str) else said
    return _MODES.get(modes[0], "mean") if len(modes) == 1 else "mean"


def pooled(states_NTD: Tensor, mask_NT: Tensor | None, pooling: Pooling) -> Tensor:
    """One vector a text, N x D; the mean in float32. The mask is 1 where there is a token; padding is on the right. For
    `first` the states of the first token suffice.
    """
    if pooling == "first":
        return states_NTD[:, 0]
    if mask_NT is None:
        return states_NTD.float().mean(dim=1) if pooling == "mean" else states_NTD[:, -1]
    held_NT = mask_NT.bool()
    if pooling == "mean":
        # Filled, not multiplied: what stands in padding is arbitrary.
        summed_ND = states_NTD.float().masked_fill(~held_NT[:, :, None], 0.0).sum(dim=1)
        return summed_ND / held_NT.sum(dim=1, keepdim=True)
    places_NT = torch.arange(held_NT.shape[1], device=held_NT.device) * held_NT
    return states_NTD[torch.arange(len(held_NT), device=held_NT.device), places_NT.argmax(dim=1)]


@dataclass(frozen=True)
class Answered:
    """Result of a pass, as transformers' models give it."""

    logits: Tensor


class PooledModel(nn.Module):
    """The backbone of a classifier of transformers, a pooling, and one linear module as its head.

    The head is named and has a bias as the classifier's last module, so a head that is one linear module is kept.
    """

    def __init__(self, classifier: Any, pooling: Pooling) -> None:
        super().__init__()
        self.base_model_prefix: str = classifier.base_model_prefix
        backbone = classifier.base_model
        if getattr(backbone, "pooler", None) is not None:
            backbone.pooler = nn.Identity()  # nothing reads what it makes
        self.config = backbone.config
        self._supports_sdpa = bool(getattr(type(classifier), "_supports_sdpa", False))
        self.pooling = pooling
        self._head = "score" if hasattr(classifier, "score") else "classifier"
        last = last_linear(classifier)
        self.add_module(self.base_model_prefix, backbone)
        linear = nn.Linear(last.in_features, last.out_features, bias=last.bias is not None, dtype=last.weight.dtype)
        self.add_module(self._head, linear)

    @property
    def backbone(self) -> Any:
        """The model without its head."""
        return self.get_submodule(self.base_model_prefix)

    def set_attn_implementation(self, kind: str) -> None:
        """Set the backbone's attention, as `PreTrainedModel.set_attn_implementation` does."""
        self.backbone.set_attn_implementation(kind)

    def forward(self, **batch: Tensor) -> Answered:
        """The logits of a batch, as the encoder collates it."""
        states_NTD = self.backbone(**batch).last_hidden_state
        vectors_ND = pooled(states_NTD, batch.get("attention_mask"), self.pooling)
        return Answered(self.get_submodule(self._head)(vectors_ND))


def last_linear(classifier: Any) -> nn.Linear:
    """The module that makes a classifier's logits."""
    backbone = {id(module) for module in classifier.base_model.modules()}
    found: Iterable[Any] = (module for module in classifier.modules() if id(module) not in backbone)
    linears = [module for module in found if isinstance(module, nn.Linear)]
    if not linears or linears[-1].out_features != classifier.config.num_labels:
        raise TypeError(f"the head of {type(classifier).__name__} does not end with a linear module")
    return linears[-1]
