"""Tiny recipes over all tasks, methods, adapters and precisions, with their tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import yaml

from s3t.models.quantized import missing_package
from testing import tiny
from testing.language import language_recipe, make_language_model, prompt_table

SISA = {"method": "sisa", "sequences": {"budget": 1}}
PAIR = {"columns": {"text_pair": "other"}}
ONE_SHARD = {"partition": {"shards": 1}, "sequences": {"budget": 2}}
REGRESSION = {"task": "text-regression", "labels": None, "columns": {"label": "number"}}

TAGS = {"task": "token-classification", "labels": tiny.TAGS, "columns": {"text": "words", "label": "tags"}}

RECIPES: dict[str, dict[str, Any]] = {
    "text": {},
    "text, of a pair": PAIR,
    "text, two templates": {"columns": {"text": "{text} {other}", "text_pair": "what {other}"}},
    "text, labels by number": {"columns": {"label": "code"}, "labels": ["0", "1", "2"]},
    "text, labels inferred": {"labels": "infer"},
    "regression": REGRESSION,
    "regression of a pair": REGRESSION | {"columns": {"label": "number", "text_pair": "other"}},
    "regression, sisa": REGRESSION | SISA,
    "labels in order": {"task": "text-ordinal-classification", "labels": ["b", "c", "a"]},
    "labels in order, sisa, vote": SISA
    | {"task": "text-ordinal-classification", "prediction": {"aggregation": "vote"}},
    "several labels": {"task": "text-multi-label-classification", "columns": {"label": "several"}},
    "several labels, sisa, vote": SISA
    | {"task": "text-multi-label-classification", "columns": {"label": "several"}}
    | {"prediction": {"aggregation": "vote", "threshold": 0.3}},
    "words with tags": TAGS,
    "words with tags, bottom-up": TAGS | {"method": {"name": "s3t", "direction": "bottom-up"}},
    "prompts and completions": {"kind": "language"},
    "prompts and completions, whole, in bfloat16": {"kind": "language", "language": {"loss": "all"}}
    | {"training": {"precision": "bfloat16", "micro_batch": 2}},
    **{
        f"prompts and completions, {bits}": {"kind": "language", "training": {"quantization": bits}, **ONE_SHARD}
        for bits in ("8bit", "4bit")
        if missing_package() is None
    },
    "image": {"kind": "image"},
    "image, several labels": {"kind": "image", "task": "image-multi-label-classification"}
    | {"columns": {"label": "several"}},
    "image, cropped and mirrored": {"kind": "image", "image": {"crop": 1, "flip": True}},
    "image, sisa, all parameters": {"kind": "image", "method": {"name": "sisa", "trainable": "all"}}
    | {"sequences": {"budget": 1}},
    "sisa": SISA,
    "sisa of a pair, all parameters": PAIR | SISA | {"method": {"name": "sisa", "trainable": "all"}},
    "sequential": SISA | {"partition": {"shards": 1}},
    "protosisa": SISA | {"method": "protosisa", "prediction": {"sisa_weight": 0.3}},
    "protosisa, image": SISA | {"kind": "image", "method": "protosisa"},
    "ridge": {"method": "ridge", "sequences": {"budget": 1}, "partition": {"shards": 1}},
    "full": {"method": "full", "sequences": {"budget": 1}, "partition": {"shards": 1, "slices": 1}},
    "full, all parameters": {"method": {"name": "full", "trainable": "all"}, "sequences": {"budget": 1}}
    | {"partition": {"shards": 1, "slices": 1}},
    "replay 0.5": {"method": {"name": "s3t", "replay": 0.5}},
    "bottom-up": {"method": {"name": "s3t", "direction": "bottom-up"}},
    "bottom-up, replay 0, pair": PAIR | {"method": {"name": "s3t", "direction": "bottom-up", "replay": 0.0}},
    "ia3": {"adapter": {"kind": "ia3", "target_modules": ["key", "value"], "rank": 16, "alpha": 32}},
    "dora, rslora, dropout": {"adapter": {"use_dora": True, "use_rslora": True, "dropout": 0.3}},
    "bfloat16": {"training": {"precision": "bfloat16"}},
    "bfloat16, regression": REGRESSION | {"training": {"precision": "bfloat16"}},
    "bfloat16, image": {"kind": "image", "training": {"precision": "bfloat16"}},
    "rows without packing or cache": {"training": {"shortcuts": [], "trunk_cache": False}},
    "packed, whole last layer, cosine": {"training": {"shortcuts": ["packing"], "schedule": "cosine"}},
    "all orders vote": {"prediction": {"ensemble": "sequences", "aggregation": "vote"}},
    "probabilities' mean": {"prediction": {"aggregation": "probabilities"}},
    "tried on public records": {"prediction": {"select": "validation", "validation": "public.parquet"}},
}
"""By name, what differs from `tiny.recipe`."""


def write_jobs(folder: Path, names: Collection[str]) -> Mapping[str, Path]:
    """Models, tables and recipes as files, which both checkouts read. Returns the folder of each job by its name."""
    models = {
        "text": tiny.make_text_model(folder / "text-model"),
        "image": tiny.make_image_model(folder / "image-model"),
        "language": make_language_model(folder / "language-model"),
    }
    jobs = {}
    for number, name in enumerate(names):
        job = jobs[name] = folder / f"job-{number:02d}"
        job.mkdir()
        differing = dict(RECIPES[name])
        kind = differing.pop("kind", "text")
        if kind == "language":
            recipe = language_recipe(models[kind], **differing)
        else:
            recipe = tiny.recipe(models[kind], kind=kind, **differing)
        recipe["training"] |= {"threads": 1}
        (job / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        _write(job / "data.parquet", _table(kind, seed=0))
        _write(job / "probe.parquet", _table(kind, seed=1))
        if "validation" in recipe.get("prediction", {}):
            _write(job / "public.parquet", _table(kind, seed=2)[:-1])  # the last record is the same in every table
    return jobs


def _table(kind: str, *, seed: int) -> pd.DataFrame:
    if kind == "language":
        return prompt_table(30, seed=seed)
    table = tiny.text_table(30, seed=seed) if kind == "text" else tiny.image_table(30, seed=seed)
    table["several"] = tiny.with_several_labels(table).label
    if kind == "text":
        table["other"] = table.text.iloc[::-1].to_list()
        table["number"] = [position / 7 for position in range(len(table))]
        table["words"], table["tags"] = (tiny.tagged_table(30, seed=seed)[name] for name in ("text", "label"))
        table["code"] = ["abc".index(label) for label in table.label]
    return table


def _write(path: Path, table: pd.DataFrame) -> None:
    pa.parquet.write_table(pa.Table.from_pandas(table), path)
