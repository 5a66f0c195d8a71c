"""A stage trains its block and its head at the declared learning rates."""

import pytest
import torch
from safetensors.torch import load

import s3t
from testing import tiny

RATE = 1e-3


def after_one_step(text_model, folder, **rates):
    """Tensors of a first stage that was trained for one step on all records."""
    training = {"epochs": 1, "batch_size": 64, "schedule": "constant", "warmup": 0.0, "learning_rate": RATE, **rates}
    size = {"partition": {"shards": 1, "slices": 1}, "adapter": {"layers_per_slice": 3}, "sequences": {"budget": 1}}
    recipe = tiny.recipe(text_model, training=training, **size)
    with s3t.Run.create(folder, recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    (content,) = (file for path, file in tiny.artifacts(folder).items() if path.endswith(".safetensors"))
    return load(content)


@pytest.mark.integration
def test_the_head_has_a_learning_rate_of_its_own(text_model, tmp_path):
    """AdamW's first step changes every number by its rate, whatever the gradient. The head's gradient does not depend
    on the head's rate, so the block is the same."""
    rates = {"same": {}, "none": {"head_learning_rate": RATE}, "high": {"head_learning_rate": 0.5}}
    same, none, high = (after_one_step(text_model, tmp_path / name, **rate) for name, rate in rates.items())
    assert any(name.startswith("head") for name in high)
    for name, value in high.items():
        assert torch.equal(same[name], none[name])
        apart = 0.5 - RATE if name.startswith("head") else 0.0
        torch.testing.assert_close((value - same[name]).abs(), torch.full_like(value, apart), atol=1e-4, rtol=0)
