"""How long an open run takes to take 100 records in, and to follow a table with 1,000 changes.

    python -m benchmarks.adding [--json] [--records 10000 1000000] [--rounds 20]

Runs of 3 shards of 4 slices that were not trained. First a run is synchronised with a Parquet file of all its records,
of which 250 are gone, 500 have changed and 250 are new, in a process of its own, whose memory is measured; beside it
the file is read by pyarrow alone, and by the checks of `init` alone. Then records are added, 100 at a time. Alternating
with each addition, the same 100 texts are encoded by the base model's tokenizer alone, and the same 12 files are
written by pyarrow, with fsync, which is the least that is durable.
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
from benchmarks.machine import describe
from s3t.records.ingest import Checks
from testing import tiny

FEW, SHARDS, SLICES = 100, 3, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--records", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as name:
        folder = Path(name)
        tiny.make_text_model(folder / "model", layers=SLICES)
        found = [measured(folder, records, options.rounds) for records in options.records]
    result = {"few": FEW, "rounds": options.rounds, "runs": found, "machine": describe()}
    print(json.dumps(result) if options.json else "\n".join(map(str, found)))


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


def timed(act: Callable[..., object], *arguments: Any) -> float:
    started = time.monotonic()
    act(*arguments)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
