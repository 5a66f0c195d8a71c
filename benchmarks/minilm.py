"""Operations of the MiniLM that the benchmark of training trains, by stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, AutoModelForSequenceClassification

from benchmarks.banking77 import SLICED
from benchmarks.flops import step_flops
from s3t.models.source import model_folder


def stage_flops(depth: int, *, tokens: int, training: Mapping[str, Any]) -> int:
    """Operations a record, forward and backward.

    Args:
        depth: of the stage.
        tokens: of the record.
        training: that section of the run's recipe, resolved: what s3t leaves out.
    """
    config: Any = AutoConfig.from_pretrained(model_folder(SLICED["base_model"], revision=None), num_labels=77)
    flops = step_flops(
        lambda: AutoModelForSequenceClassification.from_config(config, attn_implementation="eager"),
        {"input_ids": (1, tokens)},  # a mask would have to have values
        depth=depth,
        adapter=SLICED["adapter"],
        first_token="first-token" in training["shortcuts"],
    )
    return flops.whole - flops.trunk if training["trunk_cache"] else flops.whole
