"""Trains a run with whatever s3t is on the path, then predicts and deletes as it is asked on stdin, one word a line.

It uses the public API alone, since it runs with the code of other commits. `walk ACTION` records the way of an action
through the code instead of its time.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import Engine, event

import s3t
from benchmarks.walk import Walk

transactions: list[float] = []


def main(data: Path, folder: Path, mark: Path) -> None:
    """Answer each line of stdin with the seconds and the ledger transactions that the action took."""
    recipe = yaml.safe_load((data / "recipe.yaml").read_text())
    run = s3t.Run.create(folder / "run", recipe=recipe, data=data / "data.parquet")
    run.train()
    actions = _actions(run, data / "inputs.parquet")
    for _ in range(3):
        actions["predict"](-1)
    event.listen(Engine, "begin", lambda _: transactions.append(0.0))
    with run:
        for number, line in enumerate(sys.stdin):
            transactions.clear()
            walked, action = line.startswith("walk "), line.removeprefix("walk ").strip()
            if walked:
                walk = Walk(Path(s3t.__file__).parent)
                with walk.recorded():
                    actions[action](number)
                print(json.dumps(walk.counts() | {"climbing": walk.climbs()}), flush=True)
                continue
            mark.exists()
            began = time.perf_counter()
            actions[action](number)
            seconds = time.perf_counter() - began
            mark.exists()
            print(json.dumps({"seconds": seconds, "transactions": len(transactions)}), flush=True)


def _actions(run: Any, inputs: Path) -> dict[str, Any]:
    return {
        "predict": lambda number: run.predict(inputs),
        "delete": lambda number: run.delete(records=[f"r{number}"]),
        "repair": lambda number: run.repair(),
        "s3t delete": lambda number: _program("delete", str(run.path), "--record", f"r{number}"),
    }


def _program(*arguments: str) -> None:
    """Runs the program in this process."""
    sys.argv = ["s3t", *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        runpy.run_module("s3t", run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
