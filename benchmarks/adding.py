"""How long an open run takes to take 100 records in, to follow a table with 1,000 changes, and to learn what came.

    python -m benchmarks.adding [--json] [--records 10000 1000000] [--rounds 20]
    python -m benchmarks.adding --learning [--json] [--rounds 2]

Runs of 3 shards of 4 slices that were not trained. First a run is synchronised with a Parquet file of all its records,
of which 250 are gone, 500 have changed and 250 are new, in a process of its own, whose memory is measured; beside it
the file is read by pyarrow alone, and by the checks of `init` alone. Then records are added, 100 at a time. Alternating
with each addition, the same 100 texts are encoded by the base model's tokenizer alone, and the same 12 files are
written by pyarrow, with fsync, which is the least that is durable.

With `--learning`, of MiniLM on banking77, 3 shards of 3 slices, ridge heads, one epoch: a trained run of 200 records
gets 200 more in one addition or, alternating, in 20: CPU seconds until they are learned, and of a deletion's repair.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
from transformers import AutoTokenizer

import s3t
from benchmarks.banking77 import SLICED
from benchmarks.machine import describe
from s3t.records.ingest import Checks
from testing import tiny

FEW, SHARDS, SLICES, LEARNED = 100, 3, 4, 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--records", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--learning", action="store_true", help="measure how long learning takes, by additions")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    parser.add_argument("--rounds", type=int, help="20, or 2 with --learning")
    options = parser.parse_args()
    if options.learning:
        print(json.dumps(learning(Path(options.data), options.rounds or 2)))
        return
    rounds = options.rounds or 20
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as name:
        folder = Path(name)
        tiny.make_text_model(folder / "model", layers=SLICES)
        found = [measured(folder, records, rounds) for records in options.records]
    result = {"few": FEW, "rounds": rounds, "runs": found, "machine": describe()}
    print(json.dumps(result) if options.json else "\n".join(map(str, found)))


def learning(data: Path, rounds: int) -> dict[str, Any]:
    table = pd.read_parquet(data / "banking77" / "banking77.parquet")
    table = table[table.split == "train"].sample(2 * LEARNED, random_state=0)
    table = table.assign(id=[f"r{row}" for row in range(len(table))])
    found: dict[int, list[dict[str, float]]] = {1: [], 20: []}
    for _ in range(rounds):
        for additions, each in found.items():
            with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
                each.append(learned(Path(folder) / "run", table, additions))
    medians = [
        {"additions": additions}
        | {what: round(statistics.median(one[what] for one in each), 1) for what in ("learn", "repair")}
        for additions, each in found.items()
    ]
    return {"records": LEARNED, "rounds": rounds, "runs": medians, "machine": describe()}


def learned(path: Path, table: pd.DataFrame, additions: int) -> dict[str, float]:
    """CPU seconds of learning what came in so many additions, with what was there before, and of a repair."""
    recipe = SLICED | {"partition": {"shards": 3, "slices": 3, "salt": "adding"}, "head": "ridge"}
    recipe |= {"columns": SLICED["columns"] | {"id": "id"}}
    recipe |= {"labels": sorted(table.category.unique()), "training": SLICED["training"] | {"epochs": 1, "threads": 1}}
    with s3t.Run.create(path, recipe=recipe, data=table[:LEARNED], public_data=True) as run:
        run.train()
        for number in range(additions):
            size = LEARNED // additions
            run.add(table[LEARNED + number * size :][:size])
        learn = timed(run.train, clock=time.process_time)
        run.delete(records=[table.id.iloc[0]], repair=False)
        return {"learn": learn, "repair": timed(run.repair, clock=time.process_time)}


def measured(folder: Path, records: int, rounds: int) -> dict[str, Any]:
    recipe = tiny.recipe(folder / "model", partition={"shards": SHARDS, "slices": SLICES}, sequences={"budget": 4})
    tiny.text_table(records).to_parquet(folder / "first.parquet")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    times: dict[str, list[float]] = {"add": [], "encode": [], "write": []}
    s3t.Run.create(folder / str(records), recipe=recipe, data=folder / "first.parquet").close()
    write_next(folder / "first.parquet", folder / "next.parquet")
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        followed = alone.submit(synced, folder / str(records), folder / "next.parquet").result()
    with s3t.Run.open(folder / str(records)) as run:
        for number in range(rounds + 1):
            rows = tiny.text_table(FEW, seed=number + 1)
            rows["id"] = [f"n{number}-{row}" for row in range(FEW)]
            table, texts = pa.Table.from_pandas(rows), list(rows.text)
            seconds = timed(run.add, rows), timed(tokenizer, texts), timed(write, folder, table)
            if number:  # the first one loads modules
                for each, value in zip(times.values(), seconds, strict=True):
                    each.append(1000 * value)
    return {
        "records": records,
        **{f"{what}_ms": round(statistics.median(each), 1) for what, each in times.items()},
        "add_worst_ms": round(max(times["add"]), 1),
        **followed,
    }


def write_next(first: Path, later: Path) -> None:
    """The table with 1,000 changes."""
    rows = pd.read_parquet(first)
    rows.loc[:499, "text"] += " w1"
    new = rows[:250].assign(id=[f"new{row}" for row in range(250)])
    pd.concat([rows[:-250], new]).to_parquet(later)


def synced(path: Path, table: Path) -> dict[str, Any]:
    """Following a table, and reading it alone; in seconds, and bytes of the process at its peak."""
    with s3t.Run.open(path) as run:
        seconds = timed(lambda: run.sync(table, max_deletions=1))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # on Linux in KiB
        again = timed(lambda: run.sync(table, max_deletions=0))
        checking = timed(lambda: [*Checks(run.recipe, fixed=run.parts.description.labels).windows(table)])
    reading = timed(pa.parquet.read_table, table)
    times = {"sync": seconds, "nothing_to_do": again, "checking": checking, "reading": reading}
    return {f"{name}_seconds": round(value, 2) for name, value in times.items()} | {"sync_peak_bytes": peak}


def write(folder: Path, rows: pa.Table) -> None:
    """As many rows, in as many files as an addition has."""
    for number in range(SHARDS * SLICES):
        path = folder / f"bare-{number}.parquet"
        pa.parquet.write_table(rows.slice(number * FEW // 12, FEW // 12), path)
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def timed(act: Callable[..., object], *arguments: Any, clock: Callable[[], float] = time.monotonic) -> float:
    started = clock()
    act(*arguments)
    return clock() - started


if __name__ == "__main__":
    main()
