"""Where a training step's time goes, by kind of operator: what keeps it from the peak of matrix products.

    OMP_NUM_THREADS=1 python -m benchmarks.operators [--json] [--quick] [--results FILE]

As part `peak` of `benchmarks.training`: MiniLM, records of 64 tokens, one thread, each precision in turn. Profiled by
torch.profiler are three epochs of each stage; the fastest counts, as the clock runs while another program computes. An
operator's time is its own, without that of what it calls. For each kind of operator, its share of the epoch's time.
Between operators lie Python and dispatch; the profiler makes these, and small operators, slower.

For products with the base's weights also their rate: multiplications and additions a second, over those of the best
square product of the same process.

Writes benchmarks/results/operators.json. With --quick: a few records; that it works, no measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table
from torch.profiler import ProfilerActivity, profile

import s3t
from benchmarks.machine import describe
from benchmarks.training import PARTS, QUICK, prepared, recipe_of
from benchmarks.variant import matmul_peak
from s3t.events import EpochEnd, Event
from s3t.program import set_up_process

RESULTS = Path(__file__).parent / "results" / "operators.json"
PRECISIONS = ("float32", "bfloat16")
RANK = 16
RECORDS, PROFILED = 192, 3
"""Records, and epochs of each stage."""

Operator: TypeAlias = tuple[str, Sequence[Sequence[int]], float, int]
"""Name, shapes of the inputs, own seconds, calls."""

KINDS = {
    "base": "products with the base's weights",
    "lora": "products of LoRA",
    "attention": "attention: products and softmax",
    "norm": "layer norms",
    "activation": "activation",
    "sums": "other sums and products of elements",
    "copies": "copies, casts, gathering",
    "optimiser": "clipping and optimiser",
    "other": "other operators",
    "between": "between operators",
}
PRODUCTS = {"aten::addmm", "aten::mm", "aten::linear", "aten::matmul", "aten::mkldnn_linear", "aten::addmm_"}
BY_NAME = {
    "attention": ("bmm", "softmax", "scaled_dot_product"),
    "norm": ("layer_norm",),
    "activation": ("gelu", "tanh"),
    "optimiser": ("adamw", "Optimizer", "_foreach", "vector_norm", "clamp"),
    "copies": ("copy", "_to_", "::to", "clone", "contiguous", "::cat", "index", "embedding", "select", "stack", "fill"),
    "sums": ("::add", "::sum", "::mul", "::div", "::sub", "::zero", "threshold", "masked"),
}
"""Parts of operators' names; the first kind that fits counts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    parser.add_argument("--quick", action="store_true", help="a few records: that it works")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results")
    options = parser.parse_args()
    if options.quick and options.results == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another file with --results")
    set_up_process()  # as `s3t train` does
    load = os.getloadavg()[0]
    found = {precision: profiled(precision, Path(options.data), quick=options.quick) for precision in PRECISIONS}
    result = {"profiles": found, "load_before": load, "machine": describe()}
    options.results.write_text(json.dumps(result, indent=1) + "\n")
    if options.json:
        print(json.dumps(result))
        return
    table = Table("", *(f"{precision}, stage {n + 1}" for precision in PRECISIONS for n in range(3)))
    for kind, what in KINDS.items():
        shares = [stage["shares"][kind] for precision in PRECISIONS for stage in found[precision]]
        table.add_row(what, *(f"{round(100 * share)} %" for share in shares))
    rates = [stage["rate_of_base"] for precision in PRECISIONS for stage in found[precision]]
    table.add_row("rate of the base's products", *(f"{round(100 * rate)} %" for rate in rates))
    Console(soft_wrap=True).print(table)


def profiled(precision: str, data: Path, *, quick: bool) -> list[dict[str, Any]]:
    """For each stage, shares of time by kind, and the rate of products with the base's weights."""
    part = PARTS["peak"]
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as name:
        folder = Path(name)
        records = prepared(part, data, folder, count=QUICK if quick else RECORDS)
        recipe = recipe_of(part, precision, seed=0)
        recipe |= {"labels": json.loads((data / "banking77" / "categories.json").read_text())}
        recipe["training"] |= {"epochs": 1 + PROFILED}
        torch.set_num_threads(1)
        heard = LaterEpochs()
        with s3t.Run.create(folder / "run", recipe=recipe, data=pd.read_parquet(records), public_data=True) as run:
            peak = matmul_peak(precision)
            run.train(progress=heard)
            peak = max(peak, matmul_peak(precision))
    stages = [heard.epochs[first : first + PROFILED] for first in range(0, len(heard.epochs), PROFILED)]
    return [summary(*min(epochs, key=lambda epoch: epoch[0]), peak=peak) for epochs in stages]


class LaterEpochs:
    """An observer of training that profiles every epoch of a stage but the first."""

    def __init__(self) -> None:
        self.epochs: list[tuple[float, float, list[Operator]]] = []
        """Seconds of each by the clock and of the processor, and its operators."""
        self._profile: Any = None
        self._began = _clocks()

    def __call__(self, event: Event) -> None:
        """End a profile at the end of an epoch, and begin the next."""
        if not isinstance(event, EpochEnd):
            return
        if event.epoch > 1:
            seconds, cpu = (now - began for now, began in zip(_clocks(), self._began, strict=True))
            self._profile.__exit__(None, None, None)
            self.epochs.append((seconds, cpu, operators_of(self._profile)))
            self._profile = None  # its events take gigabytes
        if event.epoch < event.epochs:
            self._profile = profile(activities=[ProfilerActivity.CPU], record_shapes=True)
            self._profile.__enter__()
            self._began = _clocks()


def _clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def operators_of(profiled: Any) -> list[Operator]:
    """Operators of a profile; those with the same name and shapes are one."""
    sums: dict[tuple[str, tuple[tuple[int, ...], ...]], tuple[float, int]] = {}
    for each in profiled.events():
        key = each.name, tuple(map(tuple, each.input_shapes or ()))
        own, calls = sums.get(key, (0.0, 0))
        sums[key] = own + each.self_cpu_time_total / 1e6, calls + 1
    return [(name, shapes, own, calls) for (name, shapes), (own, calls) in sums.items()]


def summary(seconds: float, cpu: float, operators: Iterable[Operator], *, peak: float) -> dict[str, Any]:
    """Shares of an epoch's seconds by kind of operator; rate of the base's products, as a share of a peak.

    Args:
        seconds: of the epoch, by the clock, as those of operators.
        cpu: seconds of the processor; other programs had it for the rest, from all kinds of operator alike.
        operators: of the epoch.
        peak: operations a second of the best product.
    """
    times, flops, others = dict.fromkeys(KINDS, 0.0), 0, dict[str, float]()
    for name, shapes, own, calls in operators:
        kind = kind_of(name, shapes)
        times[kind] += own
        if kind == "base":
            flops += calls * operations(shapes)
        if kind == "other":
            others[name] = others.get(name, 0.0) + own
    times["between"] = seconds - sum(times.values())
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "shares": {kind: own / seconds for kind, own in times.items()},
        "rate_of_base": flops / (times["base"] * cpu / seconds) / peak if times["base"] else None,
        "matmul_gflops": peak / 1e9,
        "most_of_other": dict(sorted(others.items(), key=lambda each: -each[1])[:5]),
    }


def kind_of(name: str, shapes: Sequence[Sequence[int]]) -> str:
    """The kind of an operator.

    >>> kind_of("aten::mm", [[2048, 384], [384, 16]]), kind_of("aten::mm", [[2048, 384], [384, 1536]])
    ('lora', 'base')
    """
    if name in PRODUCTS:
        return "lora" if any(RANK in shape for shape in shapes) else "base"
    if name.startswith("aten::") and any(len(shape) == 4 for shape in shapes):
        return "attention"  # only there do tensors have heads: texts, heads, words, words
    return next((kind for kind, parts in BY_NAME.items() if any(part in name for part in parts)), "other")


def operations(shapes: Sequence[Sequence[int]]) -> int:
    """Multiplications and additions of a product: of its last two matrices.

    >>> operations([[1536], [2048, 384], [384, 1536]]) == 2 * 2048 * 384 * 1536
    True
    """
    matrices = [shape for shape in shapes if len(shape) == 2]
    if len(matrices) < 2:
        return 0
    (rows, inner), (_, columns) = matrices[-2:]
    return 2 * rows * inner * columns


if __name__ == "__main__":
    main()
