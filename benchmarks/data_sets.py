"""How fast stages train on five data sets, against the same procedure as a competent user writes it.

    OMP_NUM_THREADS=1 python -m benchmarks.data_sets [--json] [--data-set sst2] [--quick] [--results FOLDER]

The opponent is `benchmarks.competent`. banking77, SST-2, CoLA and STS-B with MiniLM, CIFAR-10 with a ViT; one shard,
three slices of a third of the layers, one order, LoRA r=16; 600 records, 3 epochs, batch 32. One thread; CPU seconds,
in which loading and encoding count. Variants take turns, each in a process of its own, with three seeds.

Each repetition is written to benchmarks/results/data_sets.json when it is done, and not made again on the same machine.
With --quick: a few records, one repetition; that it works, no measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.flops import cache_bound
from benchmarks.machine import describe
from benchmarks.variant import Job, measure
from experiments.tasks import Task, task

RESULTS = Path(__file__).parent / "results"
DATA_SETS = ("banking77", "sst2", "cola", "stsb", "cifar10")
VARIANTS = ("competent", "s3t")
RECORDS, TRIED, SEEDS, SLICES = 600, 500, 3, 3
QUICK = 24
TRAINING = {"epochs": 3, "batch_size": 32, "learning_rate": 1e-3, "schedule": "linear", "warmup": 0.06, "threads": 1}

Runs = Sequence[Mapping[str, Mapping[str, Any]]]
"""Repetitions: each variant's result, as `benchmarks.variant.measure` returns it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data-set", choices=DATA_SETS, action="append", help="this one alone; may be repeated")
    parser.add_argument("--quick", action="store_true", help="a few records, once: that it works")
    parser.add_argument("--results", default=str(RESULTS), help="folder of results; what is there is not made again")
    options = parser.parse_args()
    if options.quick and Path(options.results) == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another folder with --results")
    result = resumed(options.data_set or DATA_SETS, Path(options.results), quick=options.quick)
    print(json.dumps(result)) if options.json else show(result)


def resumed(names: Sequence[str], results: Path, *, quick: bool) -> dict[str, Any]:
    """All results, after the repetitions that are missing.

    Raises:
        SystemExit: the file is of another machine.
    """
    path, here = results / "data_sets.json", describe()
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"runs": {}, "machine": here}
    if any(known["machine"][what] != here[what] for what in here.keys() - {"commit"}):
        raise SystemExit(f"{path} was measured on another machine; move it away to measure anew")
    runs: dict[str, list[dict[str, Any]]] = known["runs"]
    for seed in range(1 if quick else SEEDS):
        for name in names:
            done = runs.setdefault(name, [])
            if len(done) <= seed:
                load = os.getloadavg()[0]
                by_variant = repetition(name, seed=seed, quick=quick)
                done.append({v: run | {"commit": here["commit"], "load_before": load} for v, run in by_variant.items()})
                known = {"data_sets": {one: concluded(found) for one, found in runs.items()}, "machine": here}
                known |= {"records": QUICK if quick else RECORDS, "training": TRAINING, "runs": runs}
                path.write_text(json.dumps(known, indent=1) + "\n")
    return known


def repetition(name: str, *, seed: int, quick: bool) -> dict[str, dict[str, Any]]:
    """Every variant on a data set, once, one after another; which is first depends on the seed."""
    found = task(name, records=QUICK if quick else RECORDS, tried=QUICK if quick else TRIED)
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
        records, test = Path(folder) / "records.parquet", Path(folder) / "test.parquet"
        plain_images(found.train).to_parquet(records)
        plain_images(found.test).to_parquet(test)
        result = {}
        for variant in VARIANTS if seed % 2 == 0 else VARIANTS[::-1]:
            print(f"{name}, seed {seed}: {variant} ...", file=sys.stderr, flush=True)
            recipe = recipe_of(found, seed=seed)
            result[variant] = measure(
                Job(variant=variant, recipe=recipe, records=str(records), test=str(test), cpu_time=True)
            )
    return result


def plain_images(table: pd.DataFrame) -> pd.DataFrame:
    """The records with images as the bytes of their files, which some data sets wrap."""
    if "image" not in table:
        return table
    return table.assign(image=[image["bytes"] if isinstance(image, dict) else image for image in table.image])


def recipe_of(found: Task, *, seed: int) -> dict[str, Any]:
    """The recipe for a data set."""
    return {
        **found.recipe,
        "partition": {"shards": 1, "slices": SLICES, "salt": "data sets"},
        "sequences": {"budget": 1},
        "adapter": {
            "rank": 16,
            "alpha": 32,
            "target_modules": list(found.modules),
            "layers_per_slice": found.layers // SLICES,
        },
        "training": TRAINING | {"seed": seed},
    }


def concluded(runs: Runs) -> dict[str, Any]:
    """How many times as fast s3t is, in all and by stage, and how many points of its score are above the opponent's.

    Medians over the seeds; scores are means.
    """
    points = [100 * (ours["accuracy"][0] - theirs["accuracy"][0]) for theirs, ours in map(_both, runs)]
    return {
        **speeds(runs),
        "points_above": statistics.fmean(points),
        "scores": {variant: statistics.fmean(run[variant]["accuracy"][0] for run in runs) for variant in VARIANTS},
        "seconds": {variant: statistics.median(run[variant]["seconds"] for run in runs) for variant in VARIANTS},
    }


def speeds(runs: Runs) -> dict[str, Any]:
    """How many times as fast s3t is, in all and by stage: medians over the repetitions, and each of them.

    By stage also after the first epoch, in which s3t loads, encodes and fills the trunk cache; and how many times as
    fast the cache alone could make that.
    """
    whole = [run["competent"]["seconds"] / run["s3t"]["seconds"] for run in runs]
    stages = [_by_stage(run, first=0) for run in runs]
    later = [_by_stage(run, first=1) for run in runs]
    depths = range(1, len(stages[0]) + 1)  # of as many layers each, so the model has one for each
    return {
        "times_as_fast": statistics.median(whole),
        "every_time": whole,
        "times_as_fast_by_stage": [statistics.median(ratios) for ratios in zip(*stages, strict=True)],
        "times_as_fast_once_filled": [statistics.median(ratios) for ratios in zip(*later, strict=True)],
        "cache_bound": cache_bound(depths, layers=len(depths), width=1),
        "cache_bound_by_stage": [cache_bound([depth], layers=len(depths), width=1) for depth in depths],
    }


def _by_stage(run: Mapping[str, Mapping[str, Any]], *, first: int) -> list[float]:
    """The opponent's seconds over ours, of the epochs from the first one counted on."""
    both = zip(*map(_stages, _both(run)), strict=True)
    return [sum(other["epochs"][first:]) / sum(one["epochs"][first:]) for other, one in both]


def _both(run: Mapping[str, Mapping[str, Any]]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    return run["competent"], run["s3t"]


def _stages(run: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    stages: Sequence[Mapping[str, Any]] = run["stages"]
    return stages


def show(result: Mapping[str, Any]) -> None:
    """The table."""
    table = Table("", "CPU s", "competent", "times as fast", "by stage", "score", "competent")
    for name, found in result["data_sets"].items():
        table.add_row(
            name,
            *(f"{found['seconds'][variant]:.1f}" for variant in ("s3t", "competent")),
            f"{found['times_as_fast']:.2f}",
            ", ".join(f"{ratio:.2f}" for ratio in found["times_as_fast_by_stage"]),
            *(f"{found['scores'][variant]:.3f}" for variant in ("s3t", "competent")),
        )
    Console(soft_wrap=True).print(table)


if __name__ == "__main__":
    main()
