"""Requests that a run in a bucket makes, by the number of its slices and objects.

    python -m benchmarks.buckets [--json]

Runs whose stages are trained to a byte without a model, in a bucket of ministack, a server of S3's protocol from PyPI
that runs as a process of its own. A proxy counts. Ten records are deleted one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

import s3t
from benchmarks.machine import describe
from testing import buckets, tiny
from testing.counting import answer_nothing, training_nothing

SHAPES = ((10, 10), (30, 30), (100, 100))
"""Shards, slices."""
RECORDS_A_SLICE, DELETIONS = 5, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as name, buckets.ministack() as server:
        tiny.make_text_model(Path(name) / "model", layers=max(slices for _, slices in SHAPES))
        found = [measured(Path(name), server, *shape) for shape in SHAPES]
    result = {"runs": found, "machine": describe()}
    print(json.dumps(result) if options.json else "\n".join(map(str, found)))


def measured(folder: Path, server: str, shards: int, slices: int) -> dict[str, Any]:
    recipe = tiny.recipe(
        folder / "model",
        partition={"shards": shards, "slices": slices},
        sequences={"budget": 1},
        deletion={"repair": "manual"},
    )
    path, table = folder / f"{shards}-{slices}", tiny.text_table(shards * slices * RECORDS_A_SLICE)
    with training_nothing(), buckets.bucket_at(server, path.name, os.environ.__setitem__) as bucket:
        made = requests(bucket)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            init = alone.submit(created, path, recipe | {"store": bucket.url}, table).result()
        init["requests"] = len(made)
        with s3t.Run.open(path) as run:
            run.train()
        made = requests(bucket)
        with s3t.Run.open(path) as run:
            answer_nothing(run)
            opened = len(made)
            until, all_in_all = [], []
            for record in table.id[:DELETIONS]:
                made = requests(bucket)
                run.delete(records=[record])
                effective = run.log()[-1].effective_at
                until.append(sum(effective is None or at <= effective.timestamp() for at in made))
                all_in_all.append(len(made))
            stored = len(run.inventory().alive) * 2 + shards * slices
    return {
        "slices": shards * slices,
        "objects": stored,
        "init": init,
        "opening and answering": opened,
        "until effective": max(until),
        "until erased": sorted(all_in_all),
    }


def created(path: Path, recipe: dict[str, Any], table: pd.DataFrame) -> dict[str, float]:
    """Seconds of an init, and bytes of the process at its peak."""
    started = time.monotonic()
    s3t.Run.create(path, recipe=recipe, data=table).close()
    seconds = time.monotonic() - started
    return {"seconds": round(seconds, 1), "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def requests(bucket: buckets.Bucket) -> list[float]:
    """The times of all requests from now on, as they come."""
    made: list[float] = []
    bucket.fault = lambda _method, _path: made.append(time.time())
    return made


if __name__ == "__main__":
    main()
