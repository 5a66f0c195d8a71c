"""How the cost grows: training against layers, slices, orders and shards; prediction against shards and depth.

    python -m benchmarks.scaling [--json] [--repetitions 3] [--draw] [--quick]

BERTs with random weights (width 128), 384 records of 32 tokens, an epoch a stage, a layer a block. One number varies
from 12 layers, 4 slices, 2 orders, 1 shard; with the trunk cache and without. All points take turns; times are medians.
Beside each point is what the arithmetic says: layers passed by a record, forward and backward; blocks that stages put
on the model; a run. For a prediction: layers passed by an input, the trunk's once for all members; layers with
adapters; members; a call. What one of each costs is fitted once over all points of training, and once over all of
prediction.

Writes benchmarks/results/scaling.json, and goes on from there, and draws docs/pictures/scaling.png.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from scipy.optimize import nnls
from transformers import BertConfig, BertModel

import s3t
from benchmarks.machine import describe
from benchmarks.scaling_picture import draw
from s3t.core import Place, stages_of
from testing import tiny

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "scaling.json"
PICTURE = ROOT / "docs" / "pictures" / "scaling.png"
TOKENS, BATCH, INPUTS = 32, 32, 1024


@dataclass(frozen=True, kw_only=True)
class Point:
    """A run: N layers, L slices, B orders, m shards; with the trunk cache or without; and the depth that answers."""

    layers: int = 12
    slices: int = 4
    budget: int = 2
    shards: int = 1
    cached: bool = True
    depth: int | None = None


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured."""

    width: int = 128
    records: int = 384
    inputs: int = INPUTS


VARIED = {"layers": (4, 6, 8, 10, 12), "slices": (2, 3, 4, 6, 8, 12), "budget": (1, 2, 4, 8), "shards": (1, 2, 4, 8)}
QUICK = {name: values[:2] for name, values in VARIED.items()}
DEPTHS = Point(slices=8)
"""Prediction by depth is that of this run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--repetitions", type=int, default=3, help="times that the points take turns")
    parser.add_argument("--draw", action="store_true", help="draw what is measured already; measure nothing")
    parser.add_argument("--quick", action="store_true", help="a few tiny points, once: whether it works")
    parser.add_argument("--results", default=str(RESULTS), help="file of results; a part that is there is kept")
    parser.add_argument("--picture", default=str(PICTURE), help="file of the picture")
    options = parser.parse_args()
    results = Path(options.results)
    if options.quick and results == RESULTS:
        parser.error("--quick measures nothing that may be kept: name other files with --results and --picture")
    found = json.loads(results.read_text()) if results.is_file() else {}
    if not options.draw:
        found = completed(found, results, quick=options.quick, repetitions=options.repetitions)
    Path(options.picture).parent.mkdir(parents=True, exist_ok=True)
    draw(found, Path(options.picture))
    if options.json:
        print(json.dumps(found))
    else:
        show(found)


def completed(found: dict[str, Any], results: Path, *, quick: bool, repetitions: int) -> dict[str, Any]:
    """The results with the parts that were missing, written as soon as they are there."""
    size = Size(width=8, records=48, inputs=8) if quick else Size()
    varied, rounds = (QUICK, 1) if quick else (VARIED, repetitions)
    for part, measure in (("training", training), ("prediction", prediction)):
        if part not in found:
            load = os.getloadavg()[0]
            with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
                rows = measure(Path(folder), varied, size, rounds)
            found[part] = {
                **fitted(rows),
                "size": asdict(size),
                "repetitions": rounds,
                "machine": describe() | {"threads": torch.get_num_threads(), "load_before": load},
            }
            results.write_text(json.dumps(found, indent=2) + "\n")
    return found


Rows = list[dict[str, Any]]


def training(folder: Path, varied: dict[str, tuple[int, ...]], size: Size, rounds: int) -> Rows:
    """Seconds of training, and the arithmetic, of every point with the cache and without."""
    points = [point for cached in (True, False) for point in _points(varied, cached=cached)]
    times: dict[Point, list[float]] = {point: [] for point in points}
    work: dict[Point, list[int]] = {}
    _train(folder, points[0], size).close()  # what a first run in a process costs more is nobody's
    for number in range(rounds):
        for point in points:
            _note("training", number, rounds, point)
            with _train(folder, point, size, stopwatch=times[point]) as run:
                work[point] = training_work(run, point)
    return [
        {**asdict(point), "seconds": statistics.median(times[point]), "all_seconds": times[point], "work": work[point]}
        for point in points
    ]


def prediction(folder: Path, varied: dict[str, tuple[int, ...]], size: Size, rounds: int) -> Rows:
    """Seconds of predicting for some inputs, and the arithmetic, by shards and by depth."""
    by_shards = [replace(Point(), shards=shards, depth=4) for shards in varied["shards"]]
    by_depth = [replace(DEPTHS, depth=depth) for depth in range(1, DEPTHS.slices + 1)]
    inputs = _table(size.inputs).text.tolist()
    runs = {point: _train(folder, point, size) for point in [*by_shards, by_depth[0]]}
    times: dict[Point, list[float]] = {point: [] for point in [*by_shards, *by_depth]}
    for number in range(rounds + 1):
        for point in times:
            _note("prediction", number, rounds + 1, point)
            run = runs[point if point in runs else by_depth[0]]
            prefixes = {shard: orders[0][: point.depth] for shard, orders in enumerate(run.inventory().orders)}
            began = time.perf_counter()
            run.predict(inputs, prefixes=prefixes)
            if number:  # the first loads the model
                times[point].append(time.perf_counter() - began)
    for run in runs.values():
        run.close()
    return [
        {
            **asdict(point),
            "seconds": statistics.median(found),
            "all_seconds": found,
            "work": prediction_work(point, size.inputs),
        }
        for point, found in times.items()
    ]


def training_work(run: s3t.Run, point: Point) -> list[int]:
    """What training the run takes: records x layers, forward and backward; blocks put on the model; and a run.

    With the cache a stage passes through its blocks alone, and each slice once through what lies below the first block
    that is trained on it.
    """
    inventory, epochs = run.inventory(), run.recipe.training.epochs
    passed = 0
    filled: set[Place] = set()
    stages = stages_of(inventory.orders)
    for stage in stages:
        places = [Place(stage.shard, index) for index in stage.prefix]
        records = sum(inventory.records[place] for place in places)
        passed += epochs * records * (stage.depth + (stage.depth if point.cached else point.layers))
        for place in set(places) - filled if point.cached else ():
            filled.add(place)
            passed += inventory.records[place] * (point.layers - stage.depth)
    return [passed, sum(stage.depth for stage in stages), 1]


def prediction_work(point: Point, inputs: int) -> list[int]:
    """What a prediction takes: inputs x layers, the trunk's once for all members; inputs x layers with adapters;
    members; and a call.
    """
    depth = point.depth or 0
    return [
        inputs * (point.layers - depth + point.shards * depth),
        inputs * point.shards * depth,
        point.shards,
        1,
    ]


def fitted(rows: Rows) -> dict[str, Any]:
    """The points, each with the seconds that the arithmetic gives it, and what a unit of each work costs.

    The costs are those, none below 0, with the least sum of squares of relative deviations.
    """
    work, seconds = np.array([row["work"] for row in rows], float), np.array([row["seconds"] for row in rows])
    costs, _ = nnls(work / seconds[:, None], np.ones(len(rows)))
    model = work @ costs
    return {
        "seconds_a_unit_of_work": costs.tolist(),
        "median_deviation": float(np.median(abs(model / seconds - 1))),
        "largest_deviation": float(np.max(abs(model / seconds - 1))),
        "points": [{**row, "model_seconds": float(said)} for row, said in zip(rows, model, strict=True)],
    }


def _points(varied: dict[str, tuple[int, ...]], *, cached: bool) -> Iterator[Point]:
    seen = set()
    for name, values in varied.items():
        for value in values:
            point = replace(Point(cached=cached), **{name: value})  # type: ignore[arg-type]
            if point not in seen:
                seen.add(point)
                yield point


def _train(folder: Path, point: Point, size: Size, *, stopwatch: list[float] | None = None) -> s3t.Run:
    model = folder / f"layers-{point.layers}"
    if not model.exists():
        random_bert(model, layers=point.layers, width=size.width)
    recipe = tiny.recipe(
        model,
        partition={"shards": point.shards, "slices": point.slices},
        sequences={"budget": point.budget},
        adapter={"rank": 8, "alpha": 16, "target_modules": "all-linear"},
        text={"max_length": TOKENS},
        training={"epochs": 1, "batch_size": BATCH, "learning_rate": 1e-3, "trunk_cache": point.cached},
    )
    path = folder / f"run-{time.monotonic_ns()}"
    run = s3t.Run.create(path, recipe=recipe, data=_table(size.records))
    began = time.perf_counter()
    run.train()
    if stopwatch is not None:
        stopwatch.append(time.perf_counter() - began)
    return run


def random_bert(folder: Path, *, layers: int, width: int) -> None:
    """A BERT with random weights and the tokenizer of the tests' tiny models."""
    tiny.make_text_model(folder)
    vocabulary = json.loads((folder / "config.json").read_text())["vocab_size"]
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=max(1, width // 32),
        intermediate_size=4 * width,
        max_position_embeddings=TOKENS,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)


def _table(count: int) -> pd.DataFrame:
    """Records of TOKENS tokens each."""
    words = np.random.default_rng(0).choice(tiny.WORDS, (count, TOKENS - 2))
    return pd.DataFrame(
        {
            "id": [f"r{number}" for number in range(count)],
            "text": [" ".join(row) for row in words],
            "label": ["abc"[number % 3] for number in range(count)],
        }
    )


def _note(what: str, number: int, rounds: int, which: object) -> None:
    print(f"{what}, repetition {number + 1} of {rounds}: {which}", file=sys.stderr, flush=True)


def show(found: dict[str, Any]) -> None:
    """A table a part."""
    console = Console(soft_wrap=True)
    names: Sequence[str] = ("layers", "slices", "budget", "shards", "cached", "depth")
    for part, result in found.items():
        table = Table(*names, "s", "arithmetic, s", "apart", title=part)
        for row in result["points"]:
            apart = row["model_seconds"] / row["seconds"] - 1
            table.add_row(
                *("" if row[name] is None else str(row[name]) for name in names),
                *(f"{row['seconds']:.3f}", f"{row['model_seconds']:.3f}", f"{apart:+.0%}"),
            )
        console.print(table)


if __name__ == "__main__":
    main()
