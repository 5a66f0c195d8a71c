"""A server from which people are deleted at a steady rate while its repairs try to keep pace.

    OMP_NUM_THREADS=1 python -m benchmarks.steady_rate [--json] [--quick]

One worker, MiniLM on 4,000 records of banking77, 8 shards of 6 slices, 3 epochs. The run is trained as chains of two
slices and a spare; its stages' times, half as long again, are told to `s3t plan`, and `s3t extend` takes what it
proposes: two slices a shard in the mean, or one, and no shard dead; if nothing keeps pace, the chains as they are. 20
requests of one text a second; deletions of a record each, 0.2, 1 and 3 a second, at even times. Once more with
`head: ridge` at 1 a second. Counted: answers by their status, depths of the shards every few seconds, the log's times
until deletions are effective and erased, stages that repairs trained.

With --quick: a tiny model, few deletions; that it works, no measurement.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import numpy as np

import s3t
from benchmarks.machine import describe
from benchmarks.service import problem, seconds_of, server
from s3t.core import StageCosts
from s3t.planning.plan import DAYS_A_MONTH, Demand, plan
from s3t_server.tokens import Access
from testing import tiny

RESULTS = Path(__file__).parent / "results" / "steady_rate.json"
CASES = {
    "1": (1.0, 1000, "trained"),
    "3": (3.0, 1000, "trained"),
    "1, ridge": (1.0, 200, "ridge"),
    "0.2": (0.2, 1000, "trained"),
}
"""Deletions a second, how many, and the heads."""
CHAINS = {"depth": 2, "spares": 1, "spare_depth": 1}
_MARGIN = 1.5
"""A stage takes longer beside a server that answers."""
REQUESTS_A_SECOND, LOOK_SECONDS = 20.0, 5.0
MOST_LOOKS = 200
"""That are kept, evenly spaced."""
MONTH_SECONDS = DAYS_A_MONTH * 86_400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    parser.add_argument("--quick", action="store_true", help="a tiny model, few deletions: that it works")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results; a case that is there is kept")
    options = parser.parse_args()
    if options.quick and options.results == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another file with --results")
    found: dict[str, Any] = json.loads(options.results.read_text()) if options.results.is_file() else {}
    for name, case in CASES.items():
        if name not in found:
            load = os.getloadavg()[0]
            with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
                measured = steady(Path(folder), options, *case)
            found[name] = measured | {"load_before": load, "machine": describe()}
            options.results.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found)) if options.json else show(found)


def steady(folder: Path, options: argparse.Namespace, rate: float, count: int, head: str) -> dict[str, Any]:
    """Measure one case."""
    records, count = (48, 6) if options.quick else (4000, count)
    table, recipe = problem(folder, options, records)
    shape = {"shards": 2, "slices": 3} if options.quick else {"shards": 8, "slices": 6}
    recipe |= {
        "partition": {**shape, "salt": tiny.SALT},
        "training": {**recipe["training"], "epochs": 1 if options.quick else 3, "batch_size": 16},
        "head": head,
    }
    whole = {name: value for name, value in recipe.items() if name != "sequences"}
    whole["deletion"] = {"repair": {"policy": "as-needed", **CHAINS}}
    with s3t.Run.create(folder / "run", recipe=whole, data=table, public_data=True) as run:
        trained = run.train(progress=s3t.ProgressBar())
        models = [each for each in trained.summaries if each.kind == "model"]
        times = {depth: [_MARGIN * each.seconds for each in models if len(each.prefix) == depth] for depth in (1, 2)}
        seconds = StageCosts.declared(shape["slices"]).measured(times)
        asked = Demand(
            deletions_per_month=rate * MONTH_SECONDS, months=count / rate / MONTH_SECONDS, **shape,
            depth_after_deletion=1, layers=6, stage_seconds=None if seconds is None else seconds.by_depth,
        )  # fmt: skip
        plans = [plan(asked.model_copy(update={"mean_depth": depth})) for depth in (2.0, None)]
        proposed = next((found.proposal for found in plans if found.proposal is not None), None)
        if proposed is not None:
            run.extend(policy=proposed.repair, progress=s3t.ProgressBar())
        token, stages = Access(run).create("all", scopes=["predict", "delete", "operate"])[1], run.status().alive
    with server(folder / "run", "--workers", "1", "--no-hold") as url:
        seen = asyncio.run(_hour(url, token, table, rate=rate, count=count))
        log = httpx.get(f"{url}/v1/deletions", headers=_bearer(token), timeout=60).json()["deletions"][1:]
        repairs = httpx.get(f"{url}/v1/repairs", headers=_bearer(token), timeout=60).json()["repairs"]
    looks = seen["looks"]
    return {
        "rate": rate,
        "head": head,
        "deletions": len(log),
        "stage_seconds": asked.stage_seconds,
        "keeps_pace": proposed is not None,
        "repair": whole["deletion"]["repair"] if proposed is None else dict(proposed.repair),
        "stages_at_first": stages,
        "stages_repaired": sum(each["trained"] for each in repairs),
        "answers": seen["answers"],
        "latency_ms": seen["latency_ms"],
        "looks": looks[:: 1 + len(looks) // MOST_LOOKS],
        "mean_depth": float(np.mean([look["depths"] for look in looks])),
        "dead_at_once": max(look["dead"] for look in looks),
        "share_dead": float(np.mean([look["dead"] for look in looks])) / shape["shards"],
        "effective_ms": _percentiles(log, "effective_at"),
        "erased_ms": _percentiles(log, "erased_at"),
        "not_erased": sum(each["erased_at"] is None for each in log),
    }


async def _hour(url: str, token: str, table: Any, *, rate: float, count: int) -> dict[str, Any]:
    """Ask, delete and look at even times, until all deletions are made."""
    texts, statuses, latencies, looks = list(table.text), Counter[str](), list[float](), list[Any]()
    began, ended = time.monotonic(), asyncio.Event()

    async def ask(session: aiohttp.ClientSession, text: str) -> None:
        sent = time.monotonic()
        try:
            async with session.post("/v1/predict", json={"inputs": text, "top": 1}) as answer:
                await answer.read()
                statuses[str(answer.status)] += 1
                if answer.status == 200:
                    latencies.append(1000 * (time.monotonic() - sent))
        except (aiohttp.ClientError, TimeoutError):
            statuses["none"] += 1

    async def asking(session: aiohttp.ClientSession) -> None:
        async with asyncio.TaskGroup() as group:
            for number in itertools.takewhile(lambda _: not ended.is_set(), itertools.count()):
                group.create_task(ask(session, texts[number % len(texts)]))
                await asyncio.sleep(max(0.0, began + number / REQUESTS_A_SECOND - time.monotonic()))

    async def looking(session: aiohttp.ClientSession) -> None:
        while not ended.is_set():
            async with session.get("/v1/status") as answer:
                status = await answer.json()
            served = [(each["serving"] or {"depth": 0})["depth"] for each in status["shards"]]
            looks.append(
                {
                    "at": round(time.monotonic() - began, 1),
                    "depths": served,
                    "dead": len(served) - len(status["answering"]),
                }
            )
            await asyncio.sleep(LOOK_SECONDS)

    async def deleting(session: aiohttp.ClientSession) -> None:
        for number, record in enumerate(table.id[:count]):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            async with session.post("/v1/deletions", json={"records": [record]}) as answer:
                if answer.status != 202:
                    raise RuntimeError(f"a deletion was answered with {answer.status}: {await answer.text()}")
        ended.set()

    timeout = aiohttp.ClientTimeout(total=120.0)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=2.0)  # the server lets go after five seconds
    async with aiohttp.ClientSession(url, headers=_bearer(token), timeout=timeout, connector=connector) as session:
        await ask(session, texts[0])  # the model is loaded
        statuses.clear()
        latencies.clear()
        await asyncio.gather(asking(session), looking(session), deleting(session))
        await asyncio.sleep(2.0)  # the last one is erased
    return {
        "answers": dict(statuses),
        "latency_ms": {str(share): float(np.percentile(latencies, share)) for share in (50, 99)},
        "looks": looks,
    }


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def _percentiles(log: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    """Milliseconds since they were received, of those that are so far."""
    waits = [seconds_of(each[name]) - seconds_of(each["received_at"]) for each in log if each[name] is not None]
    return {str(share): 1000 * float(np.percentile(waits, share)) for share in (50, 99)}


def show(found: Mapping[str, Any]) -> None:
    """Print the results in words."""
    for name, case in found.items():
        print(f"{name} a second, {case['head']} heads: {case['deletions']} deletions; answers {case['answers']};")
        dead = f"{case['share_dead']:.1%} of shards dead, at most {case['dead_at_once']}"
        print(f"  mean depth {case['mean_depth']:.2f}, {dead};")
        print(f"  effective {case['effective_ms']}, erased {case['erased_ms']} ms; {case['stages_repaired']} repaired")


if __name__ == "__main__":
    main()
