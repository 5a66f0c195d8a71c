"""How many deletions a second the ledger accepts, and whether it matters how many records it holds.

    python -m benchmarks.ledger [--json] [--rounds 7] [--records 1000000]

Concurrent callers: 32 threads, each asks for one record after the other. Measured is acceptance alone, from the call
to the durable answer: locate, plan, one commit of the ledger (SQLite: synchronous=FULL), a line of the witness with its
fsync. It is what `Run.delete` does before anything is erased, by the same parts. Two ways alternate in one process:

    grouped   requests that come together share a commit and a line of the witness (what s3t does)
    single    the same queue and the same parts, with a commit and an fsync for every request

Every stage is alive before each round, and what a round accepted is erased from the ledger after it, unmeasured. For
information, `whole` is `Run.delete` with 32 callers on a run of its own, erasure and report included.

Size: one caller, in a run of a million records and in one of ten thousand, of the same shards, slices and orders, in
turns. `deletion.erase_within` puts the rewriting of slices off, which grows with the slice by its nature. Measured are
acceptance alone and the whole `Run.delete`, with every stage alive before each: artifacts go at once. Stages are
trained for no epochs, in the small run; between two deletions their bytes are put back, in both. No time is bounded.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rich.console import Console
from rich.progress import track

import s3t
from benchmarks.machine import describe
from s3t.core import FixedOrders, Inventory, Place, Stage, stages_of
from s3t.deletion.acceptance import Accepted, Acceptor, Batch, Request
from s3t.deletion.grouping import Grouped
from s3t.deletion.witness import Witness
from s3t.ledger import Address, Ledger, PostgresAddress, RecordRow, SliceState, Snapshot, ToErase, Transaction
from s3t.orders import Setting, cyclic
from s3t.store.artifacts import Artifact
from testing import tiny
from testing.postgres import PostgresServer, binaries
from testing.roles import roles
from testing.trained import commit

SEED = 0
CALLERS, REQUESTS, GROUP = 32, 10, 64
SHARDS, SLICES, ORDERS = 3, 4, 4
SMALL = 10_000
DELETIONS, WARM_UP = 60, 5
"""Of each of the two sizes, in each of the two ways."""
MODES = {"grouped": GROUP, "single": 1}


def _rewrite(transaction: Transaction, place: Place, work: ToErase, digest: str, gone: Collection[bytes]) -> None:
    """As if a slice's file was rewritten."""
    old = work.slices[place].digest
    transaction.supersede(place, old=old, new=digest, gone=gone)
    transaction.note_removed(versions=[(place, old)])


Asked = TypeVar("Asked")
"""What a caller asks for: a batch, or a record's id."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--rounds", type=int, default=7, help="of each way, alternating")
    parser.add_argument("--records", type=int, default=1_000_000, help="of the large run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as name:
        folder = Path(name)
        with servers(folder) as addresses:
            concurrent = {
                database: callers(address, folder / f"{database}.deletions", options.rounds)
                for database, address in addresses.items()
            }
        whole = whole_deletions(folder)
        size = sizes(folder, options.records) if options.records else {}
    result = {
        "seed": SEED,
        "callers": CALLERS,
        "requests_of_each": REQUESTS,
        "rounds": options.rounds,
        "concurrent": concurrent,
        "whole_run_delete": whole,
        "size": size,
        "machine": describe(),
    }
    print(json.dumps(result) if options.json else told(result))


@contextmanager
def servers(folder: Path) -> Iterator[dict[str, Address]]:
    """SQLite, and PostgreSQL if there is one on this machine."""
    found: dict[str, Address] = {"sqlite": folder / "ledger.sqlite"}
    try:
        binaries()
    except RuntimeError:
        yield found
        return
    server = PostgresServer.start(Path(tempfile.mkdtemp(prefix="s3t-pg-", dir="/tmp")))
    try:
        yield found | {"postgres": PostgresAddress.of(server.url(), run="benchmark")}
    finally:
        server.stop()


@dataclass(frozen=True)
class Alive:
    """What is alive, for given orders."""

    orders: tuple[tuple[tuple[int, ...], ...], ...]

    def inventory(self, snapshot: Snapshot) -> Inventory:
        return snapshot.inventory(FixedOrders(self.orders))


@dataclass
class Bench:
    """A ledger with what accepts for it, wired as in `run/parts.py`."""

    ledger: Ledger
    witness: Witness
    acceptor: Acceptor
    orders: tuple[tuple[tuple[int, ...], ...], ...]
    left: list[bytes]

    @classmethod
    def make(cls, address: Address, witness: Path, *, records: int) -> Bench:
        orders = (cyclic(Setting(slices=SLICES, budget=ORDERS)),) * SHARDS
        places = [Place(shard, index) for shard in range(SHARDS) for index in range(SLICES)]
        rng = np.random.default_rng(SEED)
        rows = [
            RecordRow(token=rng.bytes(32), subject=None, place=places[number % len(places)], copies=1)
            for number in range(records)
        ]
        count = records // len(places) + 1
        ledger = Ledger.create(
            address,
            slices={place: SliceState(records=count, digest="0" * 64, pending=False) for place in places},
            records=rows,
            key=rng.bytes(32),
        )
        noted = Witness(witness)
        return cls(ledger, noted, Acceptor(ledger, Alive(orders).inventory, noted), orders, [row.token for row in rows])

    def accept(self, batches: Sequence[Batch]) -> Sequence[Accepted | Exception]:
        """As `Deleter` does it."""
        results, journal = self.acceptor.accept(batches)
        self.witness.note(*journal)
        return results

    def restore(self) -> None:
        """All stages alive; nothing to erase."""
        with self.ledger.writing() as transaction:
            work = transaction.to_erase()
            for place, gone in work.records.items():
                _rewrite(transaction, place, work, "0" * 64, gone)
            transaction.note_removed(work.artifacts)
            transaction.note_walked(transaction.snapshot().generation)
            transaction.settle()
            snapshot = transaction.snapshot()
            for stage in stages_of(self.orders):
                key = f"{snapshot.generation}{stage.prefix}"[:64]
                commit(transaction, stage, key)
        self.ledger.wipe()

    def take(self, count: int) -> list[Batch]:
        """Requests for records that are there."""
        chosen, self.left = self.left[:count], self.left[count:]
        now = time.monotonic()
        requests = [Request(records={token: ""}, subjects={}, key=None, content=b"", received=now) for token in chosen]
        return [batch for request in requests for batch in request.batches(1)]


def callers(address: Address, witness: Path, rounds: int) -> dict[str, object]:
    """Both ways, in turns."""
    total = CALLERS * REQUESTS
    bench = Bench.make(address, witness, records=total * len(MODES) * (rounds + 1))
    measured: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for number in range(rounds + 1):
        for mode, limit in MODES.items():
            bench.restore()
            groups: list[int] = []
            accept = Grouped(counting(bench.accept, groups), limit=limit)
            figures = concurrently(accept, bench.take(total))
            if number:  # the first of each warms up
                measured[mode].append(figures | {"group": float(np.mean(groups))})
    bench.ledger.close()
    summary = {mode: {name: median(rows, name) for name in rows[0]} for mode, rows in measured.items()}
    grouped, single = summary["grouped"], summary["single"]
    return summary | {
        "rate_ratio": round(grouped["per_second"] / single["per_second"], 2),
        "p99_ratio": round(grouped["p99_ms"] / single["p99_ms"], 3),
    }


def counting(
    work: Callable[[Sequence[Batch]], Sequence[Accepted | Exception]], groups: list[int]
) -> Callable[[Sequence[Batch]], Sequence[Accepted | Exception]]:
    def counted(batches: Sequence[Batch]) -> Sequence[Accepted | Exception]:
        groups.append(len(batches))
        return work(batches)

    return counted


def concurrently(ask: Callable[[Asked], object], requests: Sequence[Asked]) -> dict[str, float]:
    """Requests, shared among callers: how many a second, and how long each waited."""
    waited: list[float] = []
    failed: list[BaseException] = []
    together = threading.Barrier(CALLERS + 1)

    def call(own: Sequence[Asked]) -> None:
        together.wait()
        try:
            for request in own:
                started = time.perf_counter()
                ask(request)
                waited.append((time.perf_counter() - started) * 1000)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=call, args=[requests[number::CALLERS]]) for number in range(CALLERS)]
    for thread in threads:
        thread.start()
    gc.collect()
    together.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    if failed or len(waited) != len(requests):
        raise RuntimeError(f"the benchmark is broken: {failed}")
    return {
        "per_second": len(requests) / seconds,
        "p50_ms": float(np.percentile(waited, 50)),
        "p99_ms": float(np.percentile(waited, 99)),
    }


def median(rows: Sequence[dict[str, float]], name: str) -> float:
    return round(float(np.median([row[name] for row in rows])), 2)


def whole_deletions(folder: Path) -> dict[str, float]:
    """`Run.delete` by as many callers, of a run of its own; not repaired between."""
    with made(folder / "whole", folder, records=SMALL) as run:
        run.train()
        total = CALLERS * REQUESTS
        ids = list(tiny.text_table(SMALL).id.sample(total, random_state=SEED))
        figures = concurrently(lambda record: run.delete(records=[record]), ids)
    return {name: round(value, 2) for name, value in figures.items()}


def sizes(folder: Path, large: int) -> dict[str, Any]:
    """Acceptance alone, and the whole deletion, in a large run and in a small one, in turns."""
    counts = {"small": SMALL, "large": large}
    seconds = 0.0
    for name, records in counts.items():
        started = time.perf_counter()
        made(folder / name, folder, records=records).close()
        seconds = time.perf_counter() - started
    with s3t.Run.open(folder / "small") as small:
        small.train()
        stages = roles(small).ledger.snapshot().stages
        trained = {stage: roles(small).store.get(stage.shard, key) for stage, key in stages.items()}
    runs = {name: s3t.Run.open(folder / name) for name in counts}
    ways: dict[str, Callable[[s3t.Run, str], object]] = {"accept": accept_alone, "delete": delete_one}
    times: dict[str, dict[str, list[float]]] = {name: {way: [] for way in ways} for name in runs}
    rng = np.random.default_rng(SEED)
    left = {name: rng.permutation(records)[: 2 * (DELETIONS + WARM_UP)].tolist() for name, records in counts.items()}
    for number in track(range(DELETIONS + WARM_UP), console=Console(stderr=True), description="deleting"):
        for name, run in list(runs.items())[:: 1 if number % 2 else -1]:
            for way, act in ways.items():
                restore(run, trained)
                started = time.perf_counter()
                act(run, f"r{left[name].pop()}")
                if number >= WARM_UP:
                    times[name][way].append((time.perf_counter() - started) * 1000)
    for run in runs.values():
        run.close()
    medians = {name: {way: float(np.median(found)) for way, found in ways.items()} for name, ways in times.items()}
    return {
        "records": counts,
        "deletions": DELETIONS,
        "median_ms": {name: {way: round(value, 3) for way, value in found.items()} for name, found in medians.items()},
        "ratio": {way: round(medians["large"][way] / medians["small"][way], 3) for way in ways},
        "seconds_to_make_the_large_run": round(seconds, 1),
    }


def accept_alone(run: s3t.Run, record: str) -> None:
    request = Request.of(roles(run).secret, records=[record], subjects=[], key=None)
    (batch,) = request.batches(1)
    if not roles(run).deleter._accept(batch).tainted:
        raise RuntimeError("the benchmark is broken: no stage was alive")


def delete_one(run: s3t.Run, record: str) -> None:
    report = run.delete(records=[record])
    if report.deleted != 1 or report.stages_lost == 0 or report.log[0].state != "effective":
        raise RuntimeError(f"the benchmark is broken: {report}")


def restore(run: s3t.Run, trained: Mapping[Stage, Artifact]) -> None:
    """Every stage in use, with a stage's bytes of the small run; and nothing to erase, as if slices were rewritten."""
    with roles(run).ledger.writing() as transaction:
        work = transaction.to_erase()
        for place, gone in work.records.items():
            _rewrite(transaction, place, work, work.slices[place].digest, gone)
        transaction.note_removed(work.artifacts)
        transaction.note_walked(transaction.snapshot().generation)
        transaction.settle()
        snapshot = transaction.snapshot()
        for stage, artifact in trained.items():
            if stage not in snapshot.stages:
                roles(run).store.put(stage.shard, artifact.manifest.key, artifact.content, artifact.manifest)
                commit(transaction, stage, artifact.manifest.key)
    roles(run).ledger.wipe()


def made(path: Path, folder: Path, *, records: int) -> s3t.Run:
    """A run of which no slice is rewritten within a day."""
    model = folder / "model"
    if not model.is_dir():
        tiny.make_text_model(model, layers=SLICES)
    recipe = tiny.recipe(
        model,
        partition={"shards": SHARDS, "slices": SLICES},
        sequences={"budget": ORDERS},
        training={"epochs": 0},
        deletion={"erase_within": 86_400},
    )
    return s3t.Run.create(path, recipe=recipe, data=tiny.text_table(records))


def told(result: Mapping[str, Any]) -> str:
    """For people."""
    lines = [f"{CALLERS} callers, medians of {result['rounds']} rounds:"]
    for database, found in result["concurrent"].items():
        for mode in MODES:
            row = found[mode]
            lines.append(
                f"  {database:9}{mode:8}{row['per_second']:9.1f}/s  {row['group']:4.1f} a group  "
                f"p50 {row['p50_ms']:7.2f} ms  p99 {row['p99_ms']:7.2f} ms"
            )
        lines.append(f"  {database:9}grouped has {found['rate_ratio']} x the rate, {found['p99_ratio']} x the p99")
    lines.append(f"  whole Run.delete (SQLite): {result['whole_run_delete']['per_second']:.1f}/s")
    if size := result["size"]:
        for way, ratio in size["ratio"].items():
            small, large = (size["median_ms"][name][way] for name in ("small", "large"))
            lines.append(
                f"{way}: {large:.2f} ms of {size['records']['large']} records, {small:.2f} ms of {SMALL}: {ratio} x"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
