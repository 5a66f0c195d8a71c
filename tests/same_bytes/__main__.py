"""Compares what two checkouts of s3t train and answer, bit by bit.

    OMP_NUM_THREADS=1 python -m tests.same_bytes OLD_CHECKOUT NEW_CHECKOUT

Each checkout runs in a process of its own, with its own `src` on the path; models, tables and recipes are files that
this program makes once. Recipes with quantised weights are among them where bitsandbytes is installed. Keys and
manifests may differ; tensors and answers may not. Ends with 1 on a difference. A recipe that only the old checkout
refuses is new, and passes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from tests.same_bytes.recipes import RECIPES, write_jobs

WORKER = Path(__file__).with_name("worker.py")


def compare(old: Path, new: Path, names: Collection[str] = tuple(RECIPES)) -> bool:
    """Whether both checkouts give the same bits for some recipes; prints a row a recipe."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = write_jobs(Path(folder), names)
        found = [
            _run(checkout, Path(folder), Path(folder) / f"{name}.json")
            for name, checkout in (("old", old), ("new", new))
        ]
    print(f"{'recipe':34} {'tensors':>8} {'differ':>7} {'answers':>8} {'differ':>7}")
    same = True
    for name, job in jobs.items():
        before, after = (each[job.name] for each in found)
        row = [f"{name:34}"]
        if not before["stages"] and after["stages"]:
            print(*row, "not in the old checkout")
            continue
        for part, width in (("stages", 8), ("answers", 8)):
            names = before[part].keys() | after[part].keys()
            differing = sorted(each for each in names if before[part].get(each) != after[part].get(each))
            same = same and not differing and bool(names)
            row.append(f"{len(names):{width}} {len(differing):7}")
            row += [f"\n    {each}" for each in differing[:3]]
        print(" ".join(row))
    print("the same bytes" if same else "different bytes")
    return same


def _run(checkout: Path, jobs: Path, out: Path) -> Any:
    source = checkout.resolve() / "src"
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    # -P: else the worker's own folder would be searched first.
    subprocess.run([sys.executable, "-P", str(WORKER), str(jobs), str(out)], env=environment, check=True)
    return json.loads(out.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare what two checkouts train and answer, bit by bit.")
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--recipe", choices=RECIPES, action="append", help="this one alone; may be repeated")
    chosen = parser.parse_args()
    return 0 if compare(chosen.old, chosen.new, chosen.recipe or tuple(RECIPES)) else 1


if __name__ == "__main__":
    sys.exit(main())
