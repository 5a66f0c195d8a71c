"""Files beside an export's tensors: origin for s3t, and how to load it for people. They hold nothing of a record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

DESCRIPTION, README = "s3t.json", "README.md"
FORMAT = 1

_QUANTIZED = {
    "8bit": "load_in_8bit=True",
    "4bit": 'load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True',
}
"""Arguments of transformers' `BitsAndBytesConfig` that give the base model's packed weights."""


def description_files(said: Mapping[str, Any]) -> dict[str, bytes]:
    """Files by name. The same chain gives the same: no time, host or generation is in them."""
    document = json.dumps({"format": FORMAT, **said}, indent=2, ensure_ascii=False) + "\n"
    models = ((said["shard"], said["prefix"]), *said["merged_with"])
    readme = (
        f"# An exported {'model' if said['merged'] else 'adapter'}",
        "",
        f"Made by s3t for {said['task']}: of the run {said['run']}, "
        + "; ".join(f"shard {shard}, trained on its slices {', '.join(map(str, slices))}" for shard, slices in models)
        + (" (the mean of all)." if said["merged_with"] else "."),
        "",
        "Load it:",
        "",
        "```python",
        *_loading(said),
        "```",
        "",
        "**This is a copy of what people's records were used for.** The run knows of it. When one of those records",
        "is deleted, remove this folder and every copy, unload it from every server, then run",
        "`s3t export RUN --withdrawn NAME`, with this folder's name. Keep no old one: two models compared give",
        "away what was deleted between them.",
        "",
    )
    return {DESCRIPTION: document.encode(), README: "\n".join(readme).encode()}


def _loading(said: Mapping[str, Any]) -> Sequence[str]:
    auto_class, quantized = said["auto_class"], _QUANTIZED.get(said["quantization"])
    config = () if quantized is None else (f"bits = BitsAndBytesConfig({quantized})",)
    if auto_class == "AutoModel":  # its head is a module of sentence-transformers
        bits = "" if quantized is None else ', model_kwargs={"quantization_config": bits}'
        return (
            "from sentence_transformers import SentenceTransformer",
            *(() if quantized is None else ("from transformers import BitsAndBytesConfig",)),
            "",
            *config,
            f'model = SentenceTransformer("THIS FOLDER"{bits})',
            'logits = model.encode(["a text"])',
        )
    if said["merged"]:
        return (
            f"from transformers import {auto_class}",
            "",
            f'model = {auto_class}.from_pretrained("THIS FOLDER")',
        )
    own_head = None if said["outputs"] is None else True  # the checkpoint's head, if it has one, is of another shape
    given = {
        "revision": said["revision"],
        "num_labels": said["outputs"],
        "ignore_mismatched_sizes": own_head,
        "pad_token_id": own_head and said["pad_token_id"],  # by which a decoder with a head finds a text's end
    }
    options = "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
    bits = "" if quantized is None else ", quantization_config=bits"
    return (
        "from peft import PeftModel",
        f"from transformers import {auto_class}" + ("" if quantized is None else ", BitsAndBytesConfig"),
        "",
        *config,
        f"base = {auto_class}.from_pretrained({said['base_model']!r}{options}{bits})",
        'model = PeftModel.from_pretrained(base, "THIS FOLDER").eval()',
    )
