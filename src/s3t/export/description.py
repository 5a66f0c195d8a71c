"""Files beside an export's tensors: origin for s3t, and how to load it for people. They hold nothing of a record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

DESCRIPTION, README = "s3t.json", "README.md"
FORMAT = 1

_QUANTIZED = {
    "8bit": "load_in_8bit=True",
    "4bit": 'load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True',
}
"""Arguments of transformers' `BitsAndBytesConfig` that give the base model's packed weights."""


@dataclass(frozen=True, kw_only=True)
class ExportDescription:
    """An export in words. The same chain gives the same: no time, host or generation is in it."""

    run: str
    """The run's id."""
    shard: int
    prefix: tuple[int, ...]
    """The chain's slices, in the order of training."""
    merged_with: tuple[tuple[int, tuple[int, ...]], ...]
    """Shard and slices of other models; the export has the mean of all."""
    keys: tuple[str, ...]
    """Keyed hashes of all stages that it was made of."""
    merged: bool
    task: str
    auto_class: str
    """Name of the model's class in transformers."""
    base_model: str
    """Folder or hub name."""
    base_digest: str
    """SHA-256 of the base model's files."""
    revision: str | None
    """Revision of a hub name."""
    labels: tuple[str, ...]
    """Names of the head's outputs; empty: it has none."""
    outputs: int | None
    """Outputs of the head; None: those of the base's configuration."""
    pad_token_id: int | None
    quantization: Literal["none", "8bit", "4bit"] = "none"
    """Bits of the base model's weights under which the adapter was trained."""

    def files(self) -> dict[str, bytes]:
        document = {"format": FORMAT} | asdict(self)
        return {
            DESCRIPTION: (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode(),
            README: "\n".join(self._lines()).encode(),
        }

    def _lines(self) -> Sequence[str]:
        what, models = "model" if self.merged else "adapter", ((self.shard, self.prefix), *self.merged_with)
        return (
            f"# An exported {what}",
            "",
            f"Made by s3t for {self.task}: of the run {self.run}, "
            + "; ".join(
                f"shard {shard}, trained on its slices {', '.join(map(str, slices))}" for shard, slices in models
            )
            + (" (the mean of all)." if self.merged_with else "."),
            "",
            "Load it:",
            "",
            "```python",
            *self._loading(),
            "```",
            "",
            "**This is a copy of what people's records were used for.** The run knows of it. When one of those records",
            "is deleted, remove this folder and every copy, unload it from every server, then run",
            "`s3t export RUN --withdrawn NAME`, with this folder's name. Keep no old one: two models compared give",
            "away what was deleted between them.",
            "",
        )

    def _loading(self) -> Sequence[str]:
        quantized = _QUANTIZED.get(self.quantization)
        config = () if quantized is None else (f"bits = BitsAndBytesConfig({quantized})",)
        if self.auto_class == "AutoModel":  # its head is a module of sentence-transformers
            bits = "" if quantized is None else ', model_kwargs={"quantization_config": bits}'
            return (
                "from sentence_transformers import SentenceTransformer",
                *(() if quantized is None else ("from transformers import BitsAndBytesConfig",)),
                "",
                *config,
                f'model = SentenceTransformer("THIS FOLDER"{bits})',
                'logits = model.encode(["a text"])',
            )
        if self.merged:
            return (
                f"from transformers import {self.auto_class}",
                "",
                f'model = {self.auto_class}.from_pretrained("THIS FOLDER")',
            )
        own_head = None if self.outputs is None else True  # the checkpoint's head, if it has one, is of another shape
        given = {
            "revision": self.revision,
            "num_labels": self.outputs,
            "ignore_mismatched_sizes": own_head,
            "pad_token_id": own_head and self.pad_token_id,  # by which a decoder with a head finds a text's end
        }
        options = "".join(f", {name}={value!r}" for name, value in given.items() if value is not None)
        bits = "" if quantized is None else ", quantization_config=bits"
        return (
            "from peft import PeftModel",
            f"from transformers import {self.auto_class}" + ("" if quantized is None else ", BitsAndBytesConfig"),
            "",
            *config,
            f"base = {self.auto_class}.from_pretrained({self.base_model!r}{options}{bits})",
            'model = PeftModel.from_pretrained(base, "THIS FOLDER").eval()',
        )
