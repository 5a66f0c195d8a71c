"""A stage trains its block and its head at the declared learning rates."""

import pytest
import torch
from safetensors.torch import load

import s3t
from testing import tiny

RATE = 1e-3


@pytest.fixture
def after_one_step(text_model, tmp_path):
    """Tensors of a first stage that was trained for one step on all records."""

    def train(name, **rates):
        training = {
            "epochs": 1,
            "batch_size": 64,
            "schedule": "constant",
            "warmup": 0.0,
            "learning_rate": RATE,
            **rates,
        }
        recipe = tiny.recipe(
            text_model,
            training=training,
            partition={"shards": 1, "slices": 1},
            adapter={"layers_per_slice": 3},
            sequences={"budget": 1},
        )
        with s3t.Run.create(tmp_path / name, recipe=recipe, data=tiny.text_table()) as run:
            run.train()
        (content,) = (file for path, file in tiny.artifacts(tmp_path / name).items() if path.endswith(".safetensors"))
        return load(content)

    return train


def of_head(tensors):
    return {name: value for name, value in tensors.items() if name.startswith("head")}


@pytest.mark.integration
def test_the_head_has_a_learning_rate_of_its_own(after_one_step):
    """AdamW's first step changes every number by its rate, whatever the gradient. The head's gradient does not depend
    on the head's rate, so the block is the same."""
    same, none, high = (
        after_one_step("same"),
        after_one_step("none", head_learning_rate=RATE),
        after_one_step("high", head_learning_rate=0.5),
    )
    assert {name: value.numpy().tobytes() for name, value in same.items()} == {
        name: value.numpy().tobytes() for name, value in none.items()
    }
    assert of_head(high)
    for name, value in high.items():
        if name in of_head(high):
            torch.testing.assert_close(
                (value - same[name]).abs(), torch.full_like(value, 0.5 - RATE), atol=1e-4, rtol=0
            )
        else:
            assert torch.equal(value, same[name])
