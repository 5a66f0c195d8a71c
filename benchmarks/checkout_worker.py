"""Trains a run with whatever s3t is on the path, then predicts and deletes as it is asked on stdin, one word a line.

It uses the public API alone, since it runs with the code of other commits.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import Engine, event

import s3t

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
            mark.exists()
            began = time.perf_counter()
            actions[line.strip()](number)
            seconds = time.perf_counter() - began
            mark.exists()
            print(json.dumps({"seconds": seconds, "transactions": len(transactions)}), flush=True)


def _actions(run: Any, inputs: Path) -> dict[str, Any]:
    return {
        "predict": lambda number: run.predict(inputs),
        "delete": lambda number: run.delete(records=[f"r{number}"]),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
