"""How the cost of one step grows with stages, and the memory of init with records.

    python -m benchmarks.growth [--json] [--records 100000 300000 1000000]

Stages: runs of 16 slices a shard, of 320, 1,280 and 5,120 stages, each trained to a byte without a model. Counted and
timed (seconds of the processor) are training a stage, a status, a prediction without its model, and a deletion.

Init: a run of short records from a Parquet file, each size in a process of its own: its peak of resident memory above
that of init with 1,000 records, and its time.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import s3t
from benchmarks.machine import describe
from testing import tiny
from testing.counting import answer_nothing, counted, training_nothing

SHAPES = ((5, 16, 4), (10, 16, 8), (20, 16, 16))
"""Shards, slices, orders."""
FEW = 1_000
COUNTED = ("statements", "rows", "file calls", "looks")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--records", type=int, nargs="*", default=[100_000, 300_000, 1_000_000])
    parser.add_argument("--init", type=int, help=argparse.SUPPRESS)  # the child process
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.init is not None:
        print(json.dumps(init(options.folder, options.init)))
        return
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as name:
        folder = Path(name)
        tiny.make_text_model(folder / "model", layers=max(slices for _, slices, _ in SHAPES))
        result = {
            "stages": [steps(folder, *shape) for shape in SHAPES],
            "init": inits(folder, options.records) if options.records else [],
            "machine": describe(),
        }
    print(json.dumps(result) if options.json else told(result))


def steps(folder: Path, shards: int, slices: int, budget: int) -> dict[str, Any]:
    """The cost of each step in a run of one shape."""
    stages = shards * slices * budget
    recipe = tiny.recipe(
        folder / "model",
        partition={"shards": shards, "slices": slices},
        sequences={"budget": budget, "selector": "cyclic"},
        training={"epochs": 0},
    )
    table = tiny.text_table(2_000)
    with training_nothing(), s3t.Run.create(folder / f"{stages}", recipe=recipe, data=table) as run:
        trained = cost(run.train)
        answer_nothing(run)
        return {
            "stages": stages,
            "training a stage": {name: value / stages for name, value in trained.items()},
            "status": cost(run.status),
            "prediction": cost(lambda: answer_nothing(run)),
            "deletion": cost(lambda: run.delete(records=[table.id[0]])),
        }


def cost(act: Callable[[], object]) -> dict[str, float]:
    """Counts and seconds of the processor."""
    with counted() as counts:
        started = time.process_time()
        act()
        seconds = time.process_time() - started
    return {"seconds": seconds, **{name: counts[name] for name in COUNTED}}


def inits(folder: Path, sizes: list[int]) -> list[dict[str, float]]:
    """Memory and time of init, each in a process of its own."""
    made = []
    for records in (FEW, *sizes):
        tiny.text_table(records).to_parquet(folder / "data.parquet")
        command = [sys.executable, "-m", "benchmarks.growth", "--init", str(records), "--folder", str(folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        made.append(json.loads(done.stdout))
    few = made[0]["peak_bytes"]
    return [row | {"bytes_above_few": row["peak_bytes"] - few} for row in made]


def init(folder: Path, records: int) -> dict[str, float]:
    recipe = tiny.recipe(folder / "model", partition={"shards": 3, "slices": 4}, sequences={"budget": 4})
    started = time.process_time()
    s3t.Run.create(folder / f"init-{records}", recipe=recipe, data=folder / "data.parquet").close()
    seconds = time.process_time() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # on Linux in KiB
    return {"records": records, "seconds": seconds, "peak_bytes": peak}


def told(result: dict[str, Any]) -> str:
    """For people."""
    lines = []
    for size in result["stages"]:
        lines.append(f"{size['stages']} stages")
        for step in ("training a stage", "status", "prediction", "deletion"):
            found = size[step]
            counts = ", ".join(f"{found[name]:.1f} {name}" for name in COUNTED)
            lines.append(f"  {step:18}{1000 * found['seconds']:8.2f} ms  {counts}")
    for row in result["init"]:
        above = row["bytes_above_few"]
        lines.append(
            f"init of {row['records']:>9,} records: {row['seconds']:.1f} s, {row['peak_bytes'] / 1e6:.0f} MB, "
            f"{above / 1e6:.0f} MB more than few take, {above / row['records']:.0f} bytes a record"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
