"""How fast stages train on five data sets, against the same procedure as a competent user and a plain one write it.

    OMP_NUM_THREADS=1 python -m benchmarks.data_sets [--json] [--part opponents] [--data-set sst2] [--quick]
                                                     [--results FOLDER]

banking77, SST-2, CoLA and STS-B with MiniLM, CIFAR-10 with a ViT; one shard, three slices of a third of the layers, one
order, LoRA r=16 alpha=32; 600 records, 3 epochs, batch 32, rate 0.001 with 6 % warm-up. One thread; CPU seconds, in
which loading and encoding count.
Variants take turns, each in a process of its own; a repetition has a seed of its own.

    opponents    s3t and `benchmarks.competent`, three seeds (STS-B eight, as its scores vary most); and beside them
                 `benchmarks.plain` without dropout (`transformers.Trainer`, float32), one seed, since it takes long
    accuracy     three shards, 600 records (banking77: 20 a label), 4 epochs, rate 0.002, at most 1,000 test records,
                 three seeds (SST-2 twenty); the opponents are `benchmarks.competent` with batches drawn at random, and,
                 once, s3t with the first token, one adapter on all records and layers, and logistic regression on what
                 the head reads of the bare base model
    head         the same by s3t alone, once, with other rates of the head, without clipping, and without warm-up

Each repetition is written to benchmarks/results/data_sets.json (of another part: data_sets-PART.json) when it is done,
and not made again on the same machine. With --quick: a few records, one repetition; that it works, no measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
TEXTS = ("banking77", "sst2", "cola", "stsb")
DATA_SETS = (*TEXTS, "cifar10")
COMPETENT, PLAIN = "competent", "plain without dropout"
WHOLE, FROZEN, FIRST = "one adapter", "frozen", "s3t, first token"
HEADS: dict[str, dict[str, Any]] = {
    "head 2.5 times": {"head_learning_rate": 5e-3},
    "head 5 times": {"head_learning_rate": 1e-2},
    "head 10 times": {"head_learning_rate": 2e-2},
    "no clipping": {"max_grad_norm": None},
    "no warm-up": {"warmup": 0.0},
}
RECORDS, TRIED, SLICES = 600, 500, 3
QUICK = 24
TRAINING: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 32,
    "learning_rate": 1e-3,
    "schedule": "linear",
    "warmup": 0.06,
    "threads": 1,
}

Run = Mapping[str, Mapping[str, Any]]
"""A repetition: each variant's result, as `benchmarks.variant.measure` returns it."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One measurement.

    Attributes:
        file: of the results.
        names: data sets.
        variants: changes of the recipe's sections by name; an opponent's name is its own. What changes `text` is for
            data sets of texts alone.
        seeds: repetitions of a data set.
        more_seeds: those of data sets that have others.
        once: variants that are measured in the first repetition alone.
        records: to train on.
        a_label: records a label to train on, of data sets where that is counted.
        tried: records to be tried on, at most.
        shards: of the partition.
        training: changes of the recipe's training part.
    """

    file: str
    names: Sequence[str]
    variants: Mapping[str, Mapping[str, Mapping[str, Any]]]
    seeds: int = 3
    more_seeds: Mapping[str, int] = field(default_factory=dict)
    once: Sequence[str] = ()
    records: int = RECORDS
    a_label: Mapping[str, int] = field(default_factory=dict)
    tried: int = TRIED
    shards: int = 1
    training: Mapping[str, Any] = field(default_factory=dict)


PARTS = {
    "opponents": Part(
        file="data_sets.json",
        names=DATA_SETS,
        variants={COMPETENT: {}, PLAIN: {}, "s3t": {}},
        more_seeds={"stsb": 8},
        once=(PLAIN,),
    ),
    "accuracy": Part(
        file="data_sets-accuracy.json",
        names=("banking77", "sst2", "cola", "cifar10"),
        variants={
            "s3t": {},
            COMPETENT: {"training": {"shortcuts": []}},
            FIRST: {"text": {"pooling": "first"}},
            FROZEN: {},
            WHOLE: {"partition": {"shards": 1, "slices": 1}},
        },
        more_seeds={"sst2": 20},
        once=(FIRST, FROZEN, WHOLE),
        a_label={"banking77": 20},
        tried=1_000,
        shards=3,
        training={"epochs": 4, "learning_rate": 2e-3},
    ),
}
PARTS["head"] = replace(
    PARTS["accuracy"],
    file="data_sets-head.json",
    variants={"s3t": {}} | {name: {"training": changes} for name, changes in HEADS.items()},
    seeds=1,
    more_seeds={},
    once=(),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure this part alone; may be repeated")
    parser.add_argument("--data-set", choices=DATA_SETS, action="append", help="this one alone; may be repeated")
    parser.add_argument("--quick", action="store_true", help="a few records, once: that it works")
    parser.add_argument("--results", default=str(RESULTS), help="folder of results; what is there is not made again")
    options = parser.parse_args()
    if options.quick and Path(options.results) == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another folder with --results")
    result = {
        part: resumed(part, options.data_set or DATA_SETS, Path(options.results), quick=options.quick)
        for part in options.part or PARTS
    }
    if options.json:
        print(json.dumps(result))
        return
    for part, found in result.items():
        show(part, found)


def resumed(name: str, names: Sequence[str], results: Path, *, quick: bool) -> dict[str, Any]:
    """All results of a part, after the repetitions of these data sets that are missing.

    Raises:
        SystemExit: the file is of another machine.
    """
    part, here = PARTS[name], describe()
    path = results / part.file
    known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"runs": {}, "machine": here}
    if any(known["machine"][what] != here[what] for what in here.keys() - {"commit"}):
        raise SystemExit(f"{path} was measured on another machine; move it away to measure anew")
    runs: dict[str, list[dict[str, Any]]] = known["runs"]
    seeds = {one: 1 if quick else part.more_seeds.get(one, part.seeds) for one in part.names if one in names}
    for seed in range(max(seeds.values(), default=0)):
        for one in (each for each in seeds if seed < seeds[each]):
            done = runs.setdefault(one, [])
            if len(done) <= seed:
                load = os.getloadavg()[0]
                by_variant = repetition(part, one, seed=seed, quick=quick)
                done.append({v: run | {"commit": here["commit"], "load_before": load} for v, run in by_variant.items()})
                known = {"data_sets": {each: CONCLUSIONS[name](found) for each, found in runs.items()}}
                known |= {"machine": here, "records": QUICK * part.shards if quick else part.records}
                known |= {"training": {**TRAINING, **part.training}, "runs": runs}
                path.write_text(json.dumps(known, indent=1) + "\n")
    return known


def repetition(part: Part, name: str, *, seed: int, quick: bool) -> dict[str, dict[str, Any]]:
    """Every variant on a data set, once, one after another; which is first depends on the seed."""
    a_label = None if quick else part.a_label.get(name)
    records = QUICK * part.shards if quick else None if a_label else part.records
    found = task(name, records=records, tried=QUICK if quick else part.tried)
    if a_label:
        found = replace(found, train=found.train.groupby("label").head(a_label))
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
        train, test = written(found, Path(folder))
        result = {}
        variants = [
            each
            for each, changes in part.variants.items()
            if (seed == 0 or each not in part.once) and ("text" not in changes or "text" in found.recipe)
        ]
        for variant in variants if seed % 2 == 0 else variants[::-1]:
            print(f"{name}, seed {seed}: {variant} ...", file=sys.stderr, flush=True)
            job = Job(
                variant=variant if variant in (COMPETENT, PLAIN, FROZEN) else "s3t",
                recipe=recipe_of(found, part, part.variants[variant], seed=seed),
                records=str(train),
                test=str(test),
                cpu_time=True,
            )
            result[variant] = measure(job)
    return result


def written(found: Task, folder: Path) -> tuple[Path, Path]:
    """Files of the records to train on and to be tried on."""
    records, test = folder / "records.parquet", folder / "test.parquet"
    plain_images(found.train).to_parquet(records)
    plain_images(found.test).to_parquet(test)
    return records, test


def plain_images(table: pd.DataFrame) -> pd.DataFrame:
    """The records with images as the bytes of their files, which some data sets wrap."""
    if "image" not in table:
        return table
    return table.assign(image=[image["bytes"] if isinstance(image, dict) else image for image in table.image])


def recipe_of(found: Task, part: Part, changes: Mapping[str, Mapping[str, Any]], *, seed: int) -> dict[str, Any]:
    """The recipe for a data set."""
    recipe = {
        **found.recipe,
        "partition": {"shards": part.shards, "slices": SLICES, "salt": "data sets"},
        "sequences": {"budget": 1},
        "adapter": {"rank": 16, "alpha": 32, "target_modules": list(found.modules)},
        "training": {**TRAINING, **part.training, "seed": seed},
    }
    recipe |= {section: {**recipe[section], **values} for section, values in changes.items()}
    recipe["adapter"]["layers_per_slice"] = found.layers // recipe["partition"]["slices"]
    return recipe


def concluded(runs: Sequence[Run]) -> dict[str, Any]:
    """How many times as fast s3t is, in all and by stage, and how many points of its score are above the opponents'.

    Medians over the seeds that a variant was measured with; scores are means.
    """
    return {
        **speeds(runs),
        "times_as_fast_as_plain": statistics.median(ratios_of(runs, PLAIN)),
        "every_time_as_plain": ratios_of(runs, PLAIN),
        "points_above": points_above(runs, COMPETENT, "s3t"),
        "points_above_plain": points_above(runs, PLAIN, "s3t"),
        **scores_and_seconds(runs),
    }


def accuracy(runs: Sequence[Run]) -> dict[str, Any]:
    """How many points of its score s3t is above the competent loop."""
    return {
        "points_above": points_above(runs, COMPETENT, "s3t"),
        **scores_and_seconds(runs),
    }


def heads(runs: Sequence[Run]) -> dict[str, Any]:
    """How many points of its score each of `HEADS` is above s3t with its defaults."""
    return {"points_above": {each: points_above(runs, "s3t", each) for each in HEADS}, **scores_and_seconds(runs)}


CONCLUSIONS: Mapping[str, Callable[[Sequence[Run]], dict[str, Any]]] = {
    "opponents": concluded,
    "accuracy": accuracy,
    "head": heads,
}


def ratios_of(runs: Sequence[Run], opponent: str, ours: str = "s3t") -> list[float]:
    """The opponent's seconds over ours, of each repetition that has both."""
    return [run[opponent]["seconds"] / run[ours]["seconds"] for run in runs if opponent in run]


def points_above(runs: Sequence[Run], below: str, above: str) -> dict[str, float | None]:
    """Hundredths of the score by which a variant is above another with the same seed: mean, and its standard error."""
    points = [100 * (run[above]["accuracy"][0] - run[below]["accuracy"][0]) for run in runs if below in run]
    error = statistics.stdev(points) / len(points) ** 0.5 if len(points) > 1 else None
    return {"mean": statistics.fmean(points), "standard_error": error}


def scores_and_seconds(runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Each variant's mean score and median CPU seconds."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        for variant, result in run.items():
            found.setdefault(variant, []).append(result)
    return {
        "scores": {each: statistics.fmean(one["accuracy"][0] for one in found[each]) for each in sorted(found)},
        "seconds": {each: statistics.median(one["seconds"] for one in found[each]) for each in sorted(found)},
    }


def speeds(runs: Sequence[Run]) -> dict[str, Any]:
    """How many times as fast as the competent loop s3t is, in all and by stage: medians, and each repetition.

    By stage also after the first epoch, in which s3t loads, encodes and fills the trunk cache; and how many times as
    fast the cache alone could make that.
    """
    whole = ratios_of(runs, COMPETENT)
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


def _by_stage(run: Run, *, first: int) -> list[float]:
    """The competent loop's seconds over ours, of the epochs from the first one counted on."""
    both = zip(run[COMPETENT]["stages"], run["s3t"]["stages"], strict=True)
    return [sum(other["epochs"][first:]) / sum(one["epochs"][first:]) for other, one in both]


def show(part: str, result: Mapping[str, Any]) -> None:
    """The part's table: CPU seconds and score of each variant; then what follows."""
    console, variants = Console(soft_wrap=True), list(PARTS[part].variants)
    table = Table(part, *(f"{variant}: {what}" for variant in variants for what in ("CPU s", "score")))
    for name, found in result["data_sets"].items():
        told = found["scores"]
        cells = [
            (f"{found['seconds'][each]:.1f}", f"{told[each]:.3f}") if each in told else ("", "") for each in variants
        ]
        table.add_row(name, *(cell for both in cells for cell in both))
    console.print(table)
    for name, found in result["data_sets"].items():
        console.print(name, {what: found[what] for what in found.keys() - {"seconds", "scores"}})


if __name__ == "__main__":
    main()
