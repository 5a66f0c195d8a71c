"""CIFAR-10 on the shared ViT, a few records: its own image processor (crop, mean, deviation), exact all the same."""

import pandas as pd
import pytest

from testing import tiny
from tests.run.worlds import make_worlds

pytestmark = pytest.mark.slow


def test_a_real_vision_model_and_real_images_are_exact(real_data, tmp_path):
    table = pd.read_parquet(real_data / "cifar10" / "test_jpegq75_full.parquet").sample(300, random_state=0)
    table = table.assign(id=[f"r{number}" for number in range(len(table))], label=table.label.astype(str))
    recipe = tiny.recipe(
        real_data / "weights" / "vit-cifar100",
        kind="image",
        labels=sorted(set(table.label)),
        partition={"shards": 1, "slices": 3},
        adapter={"rank": 8, "alpha": 16, "target_modules": ["q_proj", "v_proj"], "layers_per_slice": 4},
        training={"epochs": 2, "batch_size": 32, "learning_rate": 2e-3},
    )
    worlds = make_worlds(tmp_path, recipe, table[["id", "image", "label"]], [["r0"], ["r7"]])
    worlds.assert_exact()
    assert worlds.forgot.evaluate(table[["image", "label"]]).accuracy > 0.3
    worlds.close()
