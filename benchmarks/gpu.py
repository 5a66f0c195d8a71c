"""Training on a GPU: one stage of three models in true size, with random weights, against a competent user's loop.

    python -m benchmarks.gpu [--json] [--kind vit] [--results FOLDER]

    vit       ViT-B/16, images of 224 x 224 pixels, the 3 top layers of 12
    roberta   RoBERTa-large, texts of 128 tokens, the 6 top layers of 24
    llama     a Llama of 1.2 billion parameters, texts of 256 tokens, the 4 top layers of 16

Records, and tokens, a second in an epoch once the trunk cache is filled; and the operations that the stage needs, over
that time, as a share of the best matrix product of the same process at the same precision. The opponent is
`benchmarks.competent`, with torch's own attention. Needs a GPU; writes benchmarks/results/gpu-DEVICE.json, a kind at a
time.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from PIL import Image
from transformers import PreTrainedModel

from benchmarks.flops import step_flops
from benchmarks.machine import describe
from benchmarks.variant import Job, measure, steady
from testing import tiny

RESULTS = Path(__file__).parent / "results"
LABELS = ("a", "b", "c")
EPOCHS = 4
VARIANTS = ("competent", "s3t")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A model, and what it is trained on.

    Attributes:
        model: its type, as transformers calls it.
        config: of its configuration, what is not transformers' default.
        tokens: a record, special ones included; for images, patches and one more.
        block: layers of the block, at the top.
        targets: the modules that the block adapts.
        records: to train on.
        batch: records a step.
    """

    model: str
    config: Mapping[str, Any]
    tokens: int
    block: int
    targets: tuple[str, ...]
    records: int = 512
    batch: int = 32

    @property
    def images(self) -> bool:
        """Whether it looks at images."""
        return self.model == "vit"

    def configuration(self) -> Any:
        """The model's configuration, with a head for the labels."""
        return transformers.AutoConfig.for_model(self.model, num_labels=len(LABELS), **self.config)

    def bare(self) -> PreTrainedModel:
        """The model with its head, in eager attention, at random weights."""
        auto = (
            transformers.AutoModelForImageClassification
            if self.images
            else transformers.AutoModelForSequenceClassification
        )
        return auto.from_config(self.configuration(), attn_implementation="eager")

    def step_shape(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs of a step of one record."""
        side = self.configuration().image_size if self.images else 0
        return {"pixel_values": (1, 3, side, side)} if self.images else {"input_ids": (1, self.tokens)}

    def flops(self, *, cached: bool) -> int:
        """Operations a record of a first stage, forward and backward."""
        adapter = {**ADAPTER, "target_modules": list(self.targets), "layers_per_slice": self.block}
        found = step_flops(self.bare, self.step_shape(), depth=1, adapter=adapter)
        return found.whole - found.trunk if cached else found.whole


ADAPTER: Mapping[str, Any] = {"rank": 16, "alpha": 32}

KINDS = {
    "vit": Kind(
        model="vit", config={}, tokens=197, block=3, targets=("q_proj", "k_proj", "v_proj", "o_proj", "fc1", "fc2")
    ),
    "roberta": Kind(
        model="roberta",
        config={
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "max_position_embeddings": 514,
            "vocab_size": 50265,
            "pad_token_id": 0,  # the tiny tokenizer's
        },
        tokens=128,
        block=6,
        targets=("query", "key", "value", "dense"),
    ),
    "llama": Kind(
        model="llama",
        config={
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 8192,
            "vocab_size": 128256,
            "tie_word_embeddings": True,
            "pad_token_id": 0,
        },
        tokens=256,
        block=4,
        targets=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
        records=256,
        batch=16,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--kind", choices=KINDS, action="append", help="measure this kind alone; may be repeated")
    parser.add_argument("--results", default=str(RESULTS), help="folder of results; a kind that is there is kept")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no GPU: torch.cuda.is_available() is false here; this benchmark measures one")
    device = torch.cuda.get_device_name()
    path = Path(options.results) / f"gpu-{re.sub('[^a-z0-9]+', '-', device.lower())}.json"
    found = json.loads(path.read_text()) if path.is_file() else {}
    for name in options.kind or KINDS:
        if name not in found:
            found[name] = measured(KINDS[name]) | {"device": device, "machine": describe()}
            path.write_text(json.dumps(found, indent=2) + "\n")
    if options.json:
        print(json.dumps(found))
        return
    for name, one in found.items():
        for variant in VARIANTS:
            rate, share = one[variant]["records_a_second"], one[variant]["share_of_peak"]
            print(f"{name}, {variant}: {rate:.0f} records a second, {share:.0%} of the best matrix product")


def measured(kind: Kind, *, measure: Callable[[Job], dict[str, Any]] = measure) -> dict[str, Any]:
    """A stage of s3t and the opponent's, each in a process of its own unless another way is given."""
    found: dict[str, Any] = {"parameters": parameters(kind)}
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as name:
        job = prepared(kind, Path(name))
        for variant in VARIANTS:
            one = measure(Job(variant=variant, recipe=job.recipe, records=job.records, peak=True))
            rate = kind.records / steady(one["stages"][0])
            cached = variant == "s3t" and one["training"]["trunk_cache"]
            found[variant] = {
                "records_a_second": rate,
                "tokens_a_second": rate * kind.tokens,
                "fill_seconds": one["stages"][0]["fill"],
                "share_of_peak": rate * kind.flops(cached=cached) / one["matmul_flops"],
                **{key: one[key] for key in ("seconds", "matmul_flops", "precision", "training", "device_peak_bytes")},
            }
    theirs, ours = (found[variant]["records_a_second"] for variant in VARIANTS)
    return found | {"times_as_fast": ours / theirs}


def parameters(kind: Kind) -> int:
    """Of the model and its head."""
    with torch.device("meta"):
        return int(sum(value.numel() for value in kind.bare().parameters()))


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model's folder and its records, and the recipe of a run of one shard and one slice.

    Attributes:
        recipe: of the run.
        records: Parquet file.
    """

    recipe: dict[str, Any] = field(repr=False)
    records: str


def prepared(kind: Kind, folder: Path) -> Prepared:
    """Write the model with random weights, and records of the same length each."""
    model = write_model(kind, folder / "model")
    table = image_records(kind) if kind.images else text_records(kind)
    table.to_parquet(folder / "records.parquet")
    recipe = tiny.recipe(
        model,
        kind="image" if kind.images else "text",
        partition={"shards": 1, "slices": 1},
        sequences={"budget": 1},
        adapter={**ADAPTER, "target_modules": list(kind.targets), "layers_per_slice": kind.block},
        training={
            "epochs": EPOCHS,
            "batch_size": kind.batch,
            "learning_rate": 1e-4,
            "precision": "auto",
            "warmup": 0.0,
        },
        **({} if kind.images else {"text": {"max_length": kind.tokens}}),
    )
    return Prepared(recipe=recipe, records=str(folder / "records.parquet"))


def write_model(kind: Kind, folder: Path) -> Path:
    """A checkpoint without a head; for texts with the tokenizer of the tests' tiny models."""
    if not kind.images:
        tiny.make_text_model(folder)
        (folder / "model.safetensors").unlink()
    options = {} if kind.model == "llama" else {"add_pooling_layer": False}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(kind.configuration(), **options)
    model.save_pretrained(folder)
    return folder


def text_records(kind: Kind) -> pd.DataFrame:
    """Texts that are cut to the kind's number of tokens."""
    words = np.random.default_rng(0).choice(tiny.WORDS, (kind.records, kind.tokens))
    return _records(kind, "text", [" ".join(row) for row in words])


def image_records(kind: Kind) -> pd.DataFrame:
    """Images of noise."""
    side = kind.configuration().image_size
    contents = []
    for pixels in np.random.default_rng(0).integers(0, 256, (kind.records, side, side, 3), dtype=np.uint8):
        content = io.BytesIO()
        Image.fromarray(pixels).save(content, format="png", compress_level=0)
        contents.append(content.getvalue())
    return _records(kind, "image", contents)


def _records(kind: Kind, feature: str, values: list[Any]) -> pd.DataFrame:
    labels = [LABELS[number % len(LABELS)] for number in range(kind.records)]
    return pd.DataFrame({"id": [f"r{number}" for number in range(kind.records)], feature: values, "label": labels})


if __name__ == "__main__":
    main()
