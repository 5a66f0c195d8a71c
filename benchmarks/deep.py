"""How fast stages train in a model of true size and depth, against the same procedure as a competent user writes it.

    OMP_NUM_THREADS=1 python -m benchmarks.deep [--json] [--quick] [--results FOLDER]

RoBERTa-large (24 layers, 355 million parameters) with random weights, on SST-2; one shard, six slices of four layers,
one order, LoRA r=16; 192 records, 3 epochs, batch 16. The opponent is `benchmarks.competent`. One thread; CPU seconds,
in which encoding and filling the trunk cache count, and in the whole loading, too. Random weights learn nothing, so
there is no score.

Each repetition is written to benchmarks/results/deep.json when it is done, and not made again on the same machine.
With --quick: three layers and a few records, one repetition; that it works, no measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import transformers
from rich.console import Console
from rich.table import Table

from benchmarks.data_sets import COMPETENT, PARTS, plain_images, recipe_of, speeds
from benchmarks.gpu import KINDS
from benchmarks.machine import describe
from benchmarks.variant import Job, measure
from experiments.tasks import Task, task
from s3t.models.source import model_folder

RESULTS = Path(__file__).parent / "results"
VARIANTS = (COMPETENT, "s3t")
RECORDS, SEEDS, SLICES = 192, 2, 6
TRAINING = {"epochs": 3, "batch_size": 16, "learning_rate": 1e-4, "schedule": "linear", "warmup": 0.06, "threads": 1}
QUICK: Mapping[str, int] = {
    "num_hidden_layers": 6,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--quick", action="store_true", help="a tiny model, once: that it works")
    parser.add_argument("--results", default=str(RESULTS), help="folder of results; what is there is not made again")
    options = parser.parse_args()
    if options.quick and Path(options.results) == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another folder with --results")
    result = resumed(Path(options.results), quick=options.quick)
    print(json.dumps(result)) if options.json else show(result)


def resumed(results: Path, *, quick: bool) -> dict[str, Any]:
    """The result, after the repetitions that are missing.

    Raises:
        SystemExit: the file is of another machine.
    """
    path, here = results / "deep.json", describe()
    result: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"runs": [], "machine": here}
    if any(result["machine"][what] != here[what] for what in here.keys() - {"commit"}):
        raise SystemExit(f"{path} was measured on another machine; move it away to measure anew")
    runs: list[dict[str, Any]] = result["runs"]
    for seed in range(len(runs), 1 if quick else SEEDS):
        load = os.getloadavg()[0]
        by_variant = repetition(seed=seed, quick=quick)
        runs.append({v: run | {"commit": here["commit"], "load_before": load} for v, run in by_variant.items()})
        result = {**concluded(runs), "records": RECORDS, "training": TRAINING, "machine": here, "runs": runs}
        path.write_text(json.dumps(result, indent=1) + "\n")
    return result


def repetition(*, seed: int, quick: bool) -> dict[str, dict[str, Any]]:
    """Every variant once, one after another; which is first depends on the seed."""
    found = task("sst2", records=24 if quick else RECORDS)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as name:
        folder, records = Path(name), Path(name) / "records.parquet"
        plain_images(found.train).to_parquet(records)
        recipe = deep_recipe(found, write_model(folder / "model", found, changes=QUICK if quick else {}), seed=seed)
        result = {}
        for variant in VARIANTS if seed % 2 == 0 else VARIANTS[::-1]:
            print(f"seed {seed}: {variant} ...", file=sys.stderr, flush=True)
            result[variant] = measure(Job(variant=variant, recipe=recipe, records=str(records), cpu_time=True))
    return result


def write_model(folder: Path, found: Task, *, changes: Mapping[str, int]) -> Path:
    """A checkpoint with random weights and without a head, beside the tokenizer of the task's model."""
    shutil.copytree(model_folder(found.recipe["base_model"], revision=None), folder)
    (folder / "model.safetensors").unlink()
    config = KINDS["roberta"].configuration()
    config.update({"num_labels": 2, **changes})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.AutoModel.from_config(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def deep_recipe(found: Task, model: Path, *, seed: int) -> dict[str, Any]:
    """The recipe for the deep model."""
    layers = json.loads((model / "config.json").read_text())["num_hidden_layers"]
    changes: dict[str, dict[str, Any]] = {"partition": {"slices": SLICES}, "training": TRAINING}
    recipe = recipe_of(replace(found, layers=layers), PARTS["opponents"], changes, seed=seed)
    return recipe | {"base_model": str(model)}


def concluded(runs: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """How many times as fast s3t is, in all and by stage, and the seconds of both; medians over the repetitions."""
    seconds = {variant: statistics.median(run[variant]["seconds"] for run in runs) for variant in VARIANTS}
    return {**speeds(runs), "seconds": seconds}


def show(result: Mapping[str, Any]) -> None:
    """The table."""
    table = Table("CPU s", "competent", "times as fast", "by stage", "once the cache is filled")
    table.add_row(
        *(f"{result['seconds'][variant]:.0f}" for variant in ("s3t", "competent")),
        f"{result['times_as_fast']:.2f}",
        ", ".join(f"{ratio:.2f}" for ratio in result["times_as_fast_by_stage"]),
        ", ".join(f"{ratio:.2f}" for ratio in result["times_as_fast_once_filled"]),
    )
    Console(soft_wrap=True).print(table)


if __name__ == "__main__":
    main()
