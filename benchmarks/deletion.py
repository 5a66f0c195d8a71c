"""How long a deletion takes at the library call, in a run of 10,000 records (3 shards, 4 slices, 4 orders).

    python -m benchmarks.deletion [--json] [--deletions 100]

Alternates, in one run, three things a record:

    s3t     Run.delete of one record, every stage alive before it: locate, accept durably, erase artifacts, rewrite
            the slice, note the end
    plain   the straightforward way: rewrite one file of all records without it, append to a log with fsync, remove
            the artifacts of the shard
    limit   what the disk asks for the same promise: two SQLite commits and one durable rewrite of as many bytes as
            the slice has

Stages are trained for no epochs: a deletion does not depend on what is in them. No time is bounded here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from rich.console import Console
from rich.progress import track

import s3t
from benchmarks.machine import describe
from testing import tiny

RECORDS = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--deletions", type=int, default=100, help="records to delete")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
        times = measure(Path(folder), options.deletions)
    result = {
        "records": RECORDS,
        "deletions": options.deletions,
        **{name: summary(values) for name, values in times.items()},
        "machine": describe(),
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"{RECORDS} records, {options.deletions} deletions, milliseconds (median, p99):")
    for name in times:
        print(f"  {name:6}{result[name]['median_ms']:8.2f}{result[name]['p99_ms']:8.2f}")


def measure(folder: Path, deletions: int) -> dict[str, list[float]]:
    model = tiny.make_text_model(folder / "model", layers=4)
    table = tiny.text_table(RECORDS)
    recipe = tiny.recipe(model, partition={"shards": 3, "slices": 4}, sequences={"budget": 4}, training={"epochs": 0})
    run = s3t.Run.create(folder / "run", recipe=recipe, data=table)
    run.train(progress=s3t.ProgressBar())
    plain = Plain(folder / "plain", table)
    limit = Limit(folder / "limit", max(path.stat().st_size for path in run.path.glob("slices/**/*.parquet")))
    times: dict[str, list[float]] = {"s3t": [], "plain": [], "limit": []}
    chosen = table.id.sample(deletions, random_state=0)
    for record in track(list(chosen), description="deleting", console=Console(stderr=True)):
        for name, delete in (("s3t", delete_from(run)), ("plain", plain.delete), ("limit", limit.delete)):
            times[name].append(timed(delete, record))
        run.repair()
        plain.restore(run.path / "artifacts" / "shard-000")
    run.close()
    return times


def delete_from(run: s3t.Run) -> Callable[[str], None]:
    def delete(record: str) -> None:
        report = run.delete(records=[record])
        if report.deleted != 1 or report.stages_lost == 0:
            raise RuntimeError(f"the benchmark is broken: {report}")

    return delete


class Plain:
    """One file of all records, a log, and the shard's artifacts in a folder."""

    def __init__(self, folder: Path, table: object) -> None:
        folder.mkdir()
        self.data, self.log, self.artifacts = folder / "all.parquet", folder / "log", folder / "artifacts"
        pa.parquet.write_table(pa.Table.from_pandas(table), self.data)

    def restore(self, artifacts: Path) -> None:
        shutil.copytree(artifacts, self.artifacts, dirs_exist_ok=True)

    def delete(self, record: str) -> None:
        with self.log.open("a") as log:
            log.write(f"{record}\n")
            log.flush()
            os.fsync(log.fileno())
        rows = pa.parquet.read_table(self.data)
        part = self.data.with_suffix(".part")
        pa.parquet.write_table(rows.filter(pa.compute.not_equal(rows["id"], record)), part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(self.data)
        shutil.rmtree(self.artifacts, ignore_errors=True)


class Limit:
    """Two commits and one durable rewrite."""

    def __init__(self, folder: Path, size: int) -> None:
        folder.mkdir()
        self.file, self.content = folder / "slice", os.urandom(size)
        self.database = sqlite3.connect(folder / "db", isolation_level=None)
        self.database.execute("PRAGMA journal_mode=WAL")
        self.database.execute("PRAGMA synchronous=FULL")
        self.database.execute("CREATE TABLE log (record TEXT)")

    def delete(self, record: str) -> None:
        self.database.execute("INSERT INTO log VALUES (?)", (record,))
        part = self.file.with_suffix(".part")
        with part.open("wb") as file:
            file.write(self.content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.file)
        self.database.execute("DELETE FROM log")


def timed(action: Callable[[str], None], record: str) -> float:
    started = time.perf_counter()
    action(record)
    return (time.perf_counter() - started) * 1000


def summary(values: list[float]) -> dict[str, float]:
    return {
        "median_ms": round(float(np.median(values)), 3),
        "p99_ms": round(float(np.percentile(values, 99)), 3),
    }


if __name__ == "__main__":
    main()
