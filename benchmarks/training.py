"""How fast stages train, against the machine's limit and the arithmetic; and the memory that training takes.

    OMP_NUM_THREADS=1 python -m benchmarks.training [--json] [--part peak] [--quick] [--results FOLDER]

banking77 with MiniLM, one shard, 3 slices of two layers, LoRA r=16; batch 32. One thread; times are CPU seconds,
medians of the repetitions, each of which has another seed. Variants take turns, each in a process of its own.
`benchmarks.data_sets` compares with other procedures.

    switches   1,000 records, one order: s3t without each of its switches
    cache      1,000 records, one order, 4 epochs: an epoch with the trunk cache, once filled, against one without; the
               arithmetic's bound; the time of filling
    peak       192 records of 64 tokens, one order, 4 epochs: operations of the model in an epoch, over its time, as a
               share of the best square matrix product of the same process
    memory     600 records: growth of resident memory for one order and for three, with and without the cache; beside it
               that of the plain procedure (`benchmarks.plain`)

Each part is written to benchmarks/results/training-PART.json after every repetition; repetitions that are there, of the
same machine, are not made again. With --quick: a few records, one repetition; that it works, no measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.banking77 import SLICED
from benchmarks.flops import cache_bound
from benchmarks.machine import describe
from benchmarks.variant import Job, measure, steady

RESULTS = Path(__file__).parent / "results"
LAYERS, WIDTH, SLICES = 6, 2, 3
TOKENS = 64
QUICK = 48
"""Records with --quick."""

Runs = Mapping[str, list[dict[str, Any]]]
"""The repetitions of each variant, as `benchmarks.variant.measure` returns them."""

Changes = Mapping[str, Any]
"""Of the recipe's training part."""

SLOW: Changes = {"trunk_cache": False, "shortcuts": [], "attention": "sdpa"}
BOTH: Mapping[str, Changes] = {"float32": {"precision": "float32"}, "bfloat16": {"precision": "bfloat16"}}


@dataclass(frozen=True, kw_only=True)
class Part:
    """One measurement.

    Attributes:
        variants: recipe changes by name; a name that begins with plain is the plain procedure.
        records: to train on.
        budget: orders; those of a variant in `budgets` differ.
        epochs: of each stage.
        tokens: make every record this long; None: as it is.
        peak: whether the machine's best matrix product is measured beside.
    """

    variants: Mapping[str, Changes]
    records: int
    budget: int = 1
    epochs: int = 2
    tokens: int | None = None
    peak: bool = False
    budgets: Mapping[str, int] | None = None


PARTS = {
    "switches": Part(
        variants={
            "s3t": {},
            "without cache": {"trunk_cache": False},
            "without packing": {"shortcuts": []},
            "with sdpa": {"attention": "sdpa"},
            "float32": {"precision": "float32"},
            "without all": {**SLOW, "precision": "float32"},
        },
        records=1_000,
    ),
    "cache": Part(
        variants={
            f"{precision}, {'with' if cached else 'without'} cache": {**changes, "trunk_cache": cached}
            for precision, changes in BOTH.items()
            for cached in (False, True)
        },
        records=1_000,
        epochs=4,
    ),
    "peak": Part(variants=BOTH, records=192, epochs=4, tokens=TOKENS, peak=True),
    "memory": Part(
        variants={
            "plain, 1 order": {},
            "plain, 3 orders": {},
            "1 order": {},
            "3 orders": {},
            "3 orders without cache": {"trunk_cache": False},
        },
        records=600,
        epochs=1,
        budgets={"plain, 3 orders": 3, "3 orders": 3, "3 orders without cache": 3},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure this part alone; may be repeated")
    parser.add_argument("--repetitions", type=int, default=3, help="times that the variants take turns")
    parser.add_argument("--quick", action="store_true", help="a few records, once: whether it works")
    parser.add_argument(
        "--results", default=str(RESULTS), help="folder of results; repetitions that are there are not made again"
    )
    options = parser.parse_args()
    if options.quick and Path(options.results) == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another folder with --results")
    result = {part: resumed(part, options) for part in options.part or PARTS}
    if options.json:
        print(json.dumps(result))
        return
    for part, found in result.items():
        show(part, found)


def resumed(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The part's result, after as many repetitions as asked for; those in its file are not made again.

    Raises:
        SystemExit: the file is of another machine.
    """
    path, rounds = Path(options.results) / f"training-{name}.json", 1 if options.quick else options.repetitions
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    runs: dict[str, list[dict[str, Any]]] = found.get("runs", {variant: [] for variant in PARTS[name].variants})
    here = describe()
    if found and any(found["machine"][what] != here[what] for what in here.keys() - {"commit"}):
        raise SystemExit(f"{path} was measured on another machine; move it away to measure anew")
    for seed in range(found.get("repetitions", 0), rounds):
        load = os.getloadavg()[0]
        done = repetition(name, Path(options.data), seed=seed, quick=options.quick, told=f"{seed + 1} of {rounds}")
        for variant, run in done.items():
            runs[variant].append(run | {"commit": here["commit"], "load_before": load})
        found = concluded(name, runs)
        path.write_text(json.dumps(found, indent=1) + "\n")
    return found


def repetition(name: str, data: Path, *, seed: int, quick: bool, told: str) -> dict[str, dict[str, Any]]:
    """Every variant of a part, once, one after another."""
    part, found = PARTS[name], {}
    count = min(QUICK, part.records) if quick else part.records
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
        labels = json.loads((data / "banking77" / "categories.json").read_text())
        records = prepared(part, data, Path(folder), count=count)
        for variant in part.variants:
            print(f"{name}, repetition {told}: {variant} ...", file=sys.stderr, flush=True)
            recipe = recipe_of(part, variant, seed=seed) | {"labels": labels}
            kind = variant.partition(",")[0] if variant.startswith("plain") else "s3t"
            job = Job(variant=kind, recipe=recipe, records=str(records), peak=part.peak, cpu_time=True)
            found[variant] = measure(job) | {"trained_on": count}
    return found


def concluded(name: str, runs: Runs) -> dict[str, Any]:
    """What follows from the repetitions, and they themselves."""
    first = runs[next(iter(runs))]
    return {
        "variants": {variant: summary(found) for variant, found in runs.items()},
        **CONCLUSIONS[name](runs),
        "records": first[0]["trained_on"],
        "epochs": PARTS[name].epochs,
        "repetitions": len(first),
        "machine": describe()
        | {"threads": first[0]["threads"], "load_before": max(run["load_before"] for run in first)},
        "runs": runs,
    }


def prepared(part: Part, data: Path, folder: Path, *, count: int) -> Path:
    """File of the records to train on."""
    table = pd.read_parquet(data / "banking77" / "banking77.parquet")[["text", "category", "split"]]
    chosen = table[table.split == "train"].sample(count, random_state=0)
    if part.tokens is not None:  # a word is a token at least, and what is longer is cut
        words = " ".join(table.text).split()
        starts = range(0, part.tokens * count, part.tokens)
        chosen = chosen.assign(text=[" ".join(words[start : start + part.tokens]) for start in starts])
    records = folder / "records.parquet"
    chosen.to_parquet(records)
    return records


def recipe_of(part: Part, variant: str, *, seed: int) -> dict[str, Any]:
    """The recipe of a variant, without its labels."""
    budget = (part.budgets or {}).get(variant, part.budget)
    fixed = {"epochs": part.epochs, "seed": seed, "threads": 1}
    training = SLICED["training"] | fixed | part.variants[variant]
    text = {"text": {"max_length": part.tokens}} if part.tokens is not None else {}
    return SLICED | {"sequences": {"budget": budget}, "training": training} | text


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The repetitions of a variant."""
    return {
        "seconds": median(run["seconds"] for run in runs),
        "all_seconds": [run["seconds"] for run in runs],
        "create_seconds": median(run["create_seconds"] for run in runs),
        "fill_seconds": median(sum(stage["fill"] for stage in run["stages"]) for run in runs),
        "peak_bytes": median(run["peak_bytes"] for run in runs),
        "peak_bytes_before": median(run["peak_bytes_before"] for run in runs),
        "training": runs[0]["training"],
    }


def switches(runs: Runs) -> dict[str, Any]:
    """How many times as long as s3t each variant takes."""
    seconds = {variant: median(run["seconds"] for run in found) for variant, found in runs.items()}
    return {"times_as_long": {variant: value / seconds["s3t"] for variant, value in seconds.items()}}


def cache(runs: Runs) -> dict[str, Any]:
    """What the cache gains in an epoch once it is filled, and how much of the arithmetic's bound that is."""
    found = {}
    for precision in BOTH:
        without, cached = (epoch_seconds(runs[f"{precision}, {word} cache"]) for word in ("without", "with"))
        depths = {"stage 1": [1], "all stages": range(1, SLICES + 1)}
        bounds = {what: cache_bound(one, layers=LAYERS, width=WIDTH) for what, one in depths.items()}
        gains = {"stage 1": without[0] / cached[0], "all stages": sum(without) / sum(cached)}
        filling = median(sum(stage["fill"] for stage in run["stages"]) for run in runs[f"{precision}, with cache"])
        found[precision] = {
            what: {"times_as_fast": gain, "bound": bounds[what], "share_of_bound": gain / bounds[what]}
            for what, gain in gains.items()
        } | {"fill_seconds": filling, "fill_in_epochs_of_all_stages": filling / sum(cached)}
    return {"cache": found}


def peak(runs: Runs) -> dict[str, Any]:
    """For each stage, operations an epoch over its time, as a share of the machine's best matrix product."""
    from benchmarks.minilm import stage_flops

    found = {}
    for precision, repetitions in runs.items():
        best = max(run["matmul_flops"] for run in repetitions)
        seconds, stages = epoch_seconds(repetitions), repetitions[0]["stages"]
        flops = [
            stage["records"] * stage_flops(depth, tokens=TOKENS, training=repetitions[0]["training"])
            for depth, stage in enumerate(stages, start=1)
        ]
        found[precision] = {
            "matmul_gflops": best / 1e9,
            "stages": [done / time / best for done, time in zip(flops, seconds, strict=True)],
            "all_stages": sum(flops) / sum(seconds) / best,
        }
    return {"share_of_peak": found}


def memory(runs: Runs) -> dict[str, Any]:
    """What training adds to the memory of a process that has loaded the libraries."""
    return {
        "grown_bytes": {
            variant: median(run["peak_bytes"] - run["peak_bytes_before"] for run in found)
            for variant, found in runs.items()
        }
    }


def epoch_seconds(runs: Sequence[Mapping[str, Any]]) -> list[float]:
    """For each stage, the median over repetitions of its seconds an epoch, the first epoch left out."""
    return [median(map(steady, stages)) for stages in zip(*(run["stages"] for run in runs), strict=True)]


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


CONCLUSIONS: Mapping[str, Callable[[Runs], dict[str, Any]]] = {
    "switches": switches,
    "cache": cache,
    "peak": peak,
    "memory": memory,
}


def show(part: str, found: Mapping[str, Any]) -> None:
    """The part's table, and what follows from it."""
    console = Console(soft_wrap=True)
    table = Table(
        *("", "CPU s", "filling, s", "peak RSS, MiB", "before training"),
        title=f"{part}: {found['records']} records, {found['epochs']} epochs, medians of {found['repetitions']}",
    )
    for variant, one in found["variants"].items():
        table.add_row(
            variant,
            f"{one['seconds']:.1f}",
            f"{one['fill_seconds']:.2f}",
            *(f"{one[name] / 2**20:.0f}" for name in ("peak_bytes", "peak_bytes_before")),
        )
    console.print(table)
    for what in ("times_as_long", "cache", "share_of_peak", "grown_bytes"):
        if what in found:
            console.print(what.replace("_", " "), found[what])


if __name__ == "__main__":
    main()
