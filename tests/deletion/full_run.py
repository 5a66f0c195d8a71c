"""A whole life of a run, as a process of its own that is watched: `python -m tests.deletion.full_run PLAN`.

The plan (a JSON file) names what to do. After every step at which records are to be gone, the process says so on its
standard output, a line of JSON, and waits for a line on its standard input: meanwhile whoever started it looks.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.deletion.watch import watch_this_process

BUDGET = 3
REPLAYED = 2


class Told:
    """The line to whoever started this process; what commands print goes nowhere."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)

    def wait(self, step: str, gone: int, *, waiting: bool = False) -> None:
        """Say what was done, and how many of the plan's deletions with it; go on when told to.

        Args:
            step: in words.
            gone: deletions that are accepted.
            waiting: whether their records may still be in their slices.
        """
        print(json.dumps({"step": step, "gone": gone, "waiting": waiting}), file=self._out, flush=True)
        if not sys.stdin.readline():
            raise SystemExit("nobody listens")


def by_library(plan: dict[str, Any], told: Told) -> None:
    import pandas as pd

    import s3t

    path = Path(plan["data"])
    data = pd.read_csv(path, dtype=str) if path.suffix == ".csv" else pd.read_parquet(path)
    with s3t.Run.create(plan["run"], recipe=plan["recipe"], data=data) as run:
        told.wait("create", 0)
        run.train()
        run.status()
        run.forecast()
        run.predict(data)
        run.evaluate(data)
        told.wait("train", 0)
        for gone, request in enumerate(plan["deletions"], start=1):
            run.delete(**request, dry_run=True)
            run.delete(**request)
            told.wait(f"delete {request}", gone)
        run.repair()
        run.extend(budget=BUDGET)
        run.predict(plan["kept"])
        run.evaluate(plan["kept"])
        if not run.audit(replay=REPLAYED, seed=1).ok:
            raise SystemExit("the audit found something")
        told.wait("repair, extend, audit", gone)
    with s3t.Run.open(plan["run"]) as run:
        run.status()
    told.wait("close", gone)


def patiently(plan: dict[str, Any], told: Told) -> None:
    """Records wait in their slices until somebody asks for the erasure."""
    import s3t

    with s3t.Run.create(plan["run"], recipe=plan["recipe"], data=plan["data"]) as run:
        run.train()
        told.wait("train", 0)
        for request in plan["deletions"]:
            run.delete(**request)
        gone = len(plan["deletions"])
        told.wait("delete", gone, waiting=True)
        run.predict(plan["kept"])
    with s3t.Run.open(plan["run"]) as run:
        told.wait("close, open", gone, waiting=True)
        run.erase()
        told.wait("erase", gone)


def by_command(plan: dict[str, Any], told: Told) -> None:
    from s3t.cli.app import main

    def s3t(command: str, *options: Any) -> None:
        sys.argv = ["s3t", command, *map(str, options)]
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise SystemExit(f"{sys.argv} ended with {end.code}") from end

    run, data, kept = plan["run"], plan["data"], plan["kept"]
    s3t("ids", data, "--recipe", plan["recipe"])
    s3t("init", run, "--data", data, "--recipe", plan["recipe"])
    told.wait("init", 0)
    s3t("train", run)
    s3t("status", run, "--json")
    s3t("predict", run, "--input", data)
    s3t("predict", run, "--input", kept, "--output", plan["answers"])
    s3t("evaluate", run, "--data", data)
    told.wait("train", 0)
    for gone, request in enumerate(plan["deletions"], start=1):
        options = [part for name in request.get("records", []) for part in ("--record", name)]
        options += [part for name in request.get("subjects", []) for part in ("--subject", name)]
        if len(options) > 2:
            options = ["--file", plan["requests"]]
        s3t("delete", run, *options, "--dry-run")
        s3t("delete", run, *options)
        told.wait(f"delete {options}", gone)
    s3t("repair", run)
    s3t("extend", run, "--budget", BUDGET)
    s3t("predict", run, "--input", kept)
    s3t("evaluate", run, "--data", kept)
    s3t("audit", run, "--replay", REPLAYED, "--seed", 1)
    s3t("status", run)
    told.wait("repair, extend, audit", gone)


def leaky(plan: dict[str, Any], told: Told) -> None:
    """What a run must not do: keeps copies of its records where no list says so."""
    import shutil

    import pyarrow.parquet

    import s3t

    with s3t.Run.create(plan["run"], recipe=plan["recipe"], data=plan["data"]):
        (Path(plan["run"]) / "cache").mkdir()
        shutil.copy(plan["data"], Path(plan["run"]) / "cache" / "records")
        (Path.home() / ".s3t-history").write_text("deleted: nothing yet")
        with tempfile.NamedTemporaryFile(prefix="s3t-passing-") as passing:
            passing.write(b"gone at once")
        by_arrow = Path(tempfile.gettempdir()) / "s3t-by-arrow"  # a library that opens files past Python
        pyarrow.parquet.write_table(pyarrow.table({"id": ["gone at once, too"]}), by_arrow)
        by_arrow.unlink()
    told.wait("leak", 0)


WAYS = {"library": by_library, "command": by_command, "patience": patiently, "leaky": leaky}

if __name__ == "__main__":
    tempfile.gettempdir()  # tries the folder with a file of its own, once a process
    content = json.loads(Path(sys.argv[1]).read_bytes())
    watch_this_process(Path(content["log"]))
    WAYS[content["way"]](content, Told())
