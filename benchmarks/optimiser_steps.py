"""How good a first stage is by its optimiser steps a label: banking77 with all of its intents, and with fewer.

    python -m benchmarks.optimiser_steps [--json] [--results FILE]

One shard of one slice, the top two layers of MiniLM, the recipe of `benchmarks.banking77`; batch 32, epochs from 1 to
32. The rule in `s3t.run.reporting` comes from here. About half an hour on one core. A point that is in the
file of results is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

import s3t
from benchmarks.banking77 import SLICED
from benchmarks.machine import describe

RESULTS = Path(__file__).parent / "results" / "optimiser_steps.json"
SHAPES = {(77, 1000): (1, 2, 4, 8, 16, 32), (20, 1000): (1, 2, 4, 8, 16, 32), (5, 600): (1, 2, 4, 8)}
"""Epochs, by intents and records."""
BATCH = 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    parser.add_argument("--data", default=os.environ.get("S3T_DATA", "../shared/data"), help="folder of real data")
    parser.add_argument("--results", default=str(RESULTS), help="the file of results")
    options = parser.parse_args()
    path = Path(options.results)
    document: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {"points": [], "machine": describe()}
    measured = {(point["labels"], point["records"], point["epochs"]) for point in document["points"]}
    for (labels, records), all_epochs in SHAPES.items():
        for epochs in all_epochs:
            if (labels, records, epochs) not in measured:
                document["points"].append(measure(Path(options.data), labels, records, epochs))
                path.write_text(json.dumps(document, indent=2) + "\n")
    if options.json:
        print(json.dumps(document))
        return
    for point in document["points"]:
        print("{labels} labels, {records} records, {steps_a_label:.1f} steps a label: {accuracy:.3f}".format(**point))


def measure(data: Path, labels: int, records: int, epochs: int) -> dict[str, Any]:
    """Train one stage, evaluate on the test split."""
    table = pd.read_parquet(data / "banking77" / "banking77.parquet")
    intents = json.loads((data / "banking77" / "categories.json").read_text())[:labels]
    table = table[table.category.isin(intents)]
    train, test = table[table.split == "train"], table[table.split == "test"]
    train = train.sample(records, random_state=0)
    recipe = SLICED | {
        "labels": intents,
        "partition": {"shards": 1, "slices": 1, "salt": "optimiser steps"},
        "training": SLICED["training"] | {"epochs": epochs, "threads": 1},
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        s3t.Run.create(Path(folder) / "run", recipe=recipe, data=train) as run,
    ):
        run.train()
        accuracy = run.evaluate(test, per_depth=False).accuracy
    steps = epochs * math.ceil(records / BATCH)
    return {
        "labels": labels,
        "records": records,
        "epochs": epochs,
        "steps": steps,
        "steps_a_label": steps / labels,
        "accuracy": accuracy,
    }


if __name__ == "__main__":
    main()
