"""A head whose weights are the embeddings', as language models have it: no stage takes them for its own."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from s3t.core import Place, Stage, stage_seed
from s3t.models.assembly import assemble
from s3t.recipe import recipe_from
from s3t.tasks import TASKS, Task
from s3t.training.examples import EncodedSlice, Examples
from s3t.training.stage import train_stage
from testing import tiny

FIRST = SimpleNamespace(
    over_vocabulary=False,
    loss=lambda logits, targets: torch.nn.functional.cross_entropy(logits[:, 0], targets),
)
"""The word of a text's first token."""


@pytest.fixture
def tied(text_model, monkeypatch):
    """A masked language model of the tiny checkpoint, loaded by a recipe of a task of its own."""

    def make(**changes):
        text = TASKS["text-classification"]
        masked = Task(name="masked", inputs=text.inputs, target=text.target, model="AutoModelForMaskedLM")
        recipe = recipe_from(tiny.recipe(text_model, **changes)).model_copy(update={"task": masked})
        return *assemble(text_model, recipe, labels=3), recipe

    return make


def embeddings(model):
    whole = model.base.model
    assert whole.get_output_embeddings().weight is whole.get_input_embeddings().weight
    return whole.get_input_embeddings().weight


def stage_of(model, encoder, recipe, *, block, frozen):
    records = encoder.encode(encoder.trial(["text"]))
    targets = torch.arange(len(records))[:, None]
    part = EncodedSlice(
        place=Place(0, 0), digest="d", records=records, targets=targets, lengths=None, replayed=(), tokens=()
    )
    training = recipe.training.model_copy(update={"threads": 1, "shortcuts": []})
    seed = partial(stage_seed, 0, Stage(0, tuple(range(block))))
    examples = Examples([part], encoder)
    return train_stage(model, block, frozen=frozen, examples=examples, target=FIRST, training=training, seed=seed)[0]


def test_the_embeddings_belong_to_the_base_model_and_to_no_head(tied):
    model, encoder, recipe = tied()
    before = embeddings(model).clone()
    blocks = {}
    for block in (1, 2):
        blocks[block] = stage_of(model, encoder, recipe, block=block, frozen=dict(blocks))
    assert torch.equal(embeddings(model), before)
    for tensors in blocks.values():
        assert tensors.head
        assert not any(value.shape == before.shape for value in tensors.head.values())
    assert not torch.equal(blocks[1].head["cls.predictions.bias"], blocks[2].head["cls.predictions.bias"])


def test_a_stage_of_all_parameters_leaves_the_tie_and_the_embeddings_as_they_were(tied):
    model, encoder, recipe = tied(method={"name": "sisa", "trainable": "all"}, sequences={"budget": 1})
    before = embeddings(model).clone()
    trained = stage_of(model, encoder, recipe, block=1, frozen={})
    assert torch.equal(embeddings(model), before)
    name = next(name for name, value in trained.block.items() if value.shape == before.shape)
    assert not torch.equal(trained.block[name], before)
    with model.mounted({1: trained}):
        assert torch.equal(embeddings(model), trained.block[name])
