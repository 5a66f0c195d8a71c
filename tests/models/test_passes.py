"""A pass that starts at a border gives what the whole pass gives, for every architecture."""

from pathlib import Path

import pytest
import torch

from s3t.models.assembly import assemble
from s3t.models.passes import Passes, Start
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from testing import tiny
from tests.models.kinds import LLAMA, SMALL, TEXT, model_of_kind

KINDS = TEXT | {
    "bert": None,
    "llama": LLAMA,
    "electra-projecting": TEXT["electra"] | {"embedding_size": 4},
    "deberta-v2-convolution": TEXT["deberta-v2"] | {"conv_kernel_size": 3},
    "modernbert": SMALL | {"max_position_embeddings": 24, "pad_token_id": 0},
    "vit": None,
}


@pytest.fixture(params=KINDS)
def assembled(request, text_model, image_model, tmp_path):
    """A model with its encoder, and records of several lengths."""
    kind = request.param
    if kind == "vit":
        recipe, table = recipe_from(tiny.recipe(image_model, kind="image")), tiny.image_table()
    else:
        name = kind.removesuffix("-projecting").removesuffix("-convolution")
        folder = text_model if KINDS[kind] is None else model_of_kind(name, text_model, tmp_path / "m", **KINDS[kind])
        recipe, table = recipe_from(tiny.recipe(folder)), tiny.text_table()
    model, encoder = assemble(Path(recipe.base_model), recipe, labels=3)
    model.reset_head(seed=0)
    return model.base, encoder, encoder.encode(ingest(table, recipe).rows)[:6]


@torch.inference_mode()
def test_from_every_border_on_the_logits_are_those_of_the_whole_pass(assembled):
    base, encoder, records = assembled
    passes, batch = Passes(base), encoder.collate(records)
    whole = passes.logits(batch)
    found = passes.states(batch, [0, 1, 2, 3])
    for border, states in found.items():
        assert torch.equal(passes.logits(batch, Start(border, states)), whole), border
        for later in range(border, 4):
            assert torch.equal(passes.states(batch, [later], Start(border, states))[later], found[later])
    assert torch.equal(passes.logits(batch), whole)  # nothing stays behind


@torch.inference_mode()
def test_states_of_each_record_alone_serve_as_well(assembled):
    base, encoder, records = assembled
    passes, batch = Passes(base), encoder.collate(records)
    whole = passes.logits(batch)
    for border in (0, 1, 2, 3):
        alone = [passes.states(encoder.collate([record]), [border])[border][0] for record in records]
        states = torch.nn.utils.rnn.pad_sequence(alone, batch_first=True)
        torch.testing.assert_close(passes.logits(batch, Start(border, states)), whole, rtol=1e-5, atol=1e-6)


@torch.inference_mode()
def test_what_lies_below_a_border_is_not_computed(assembled):
    base, encoder, records = assembled
    passes, batch, ran = Passes(base), encoder.collate(records), []
    states = passes.states(batch, [0, 2])[2]
    for index, layer in enumerate(base.layers.children()):
        inner = next(module for module in layer.modules() if isinstance(module, torch.nn.Linear))
        inner.register_forward_hook(lambda *_, index=index: ran.append(index))
    passes.logits(batch, Start(2, states))
    assert set(ran) == {2}
