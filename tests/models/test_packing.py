"""Texts that share a row are blind to each other, and every model for which that may not be so is found out."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad
from transformers.models.bert import modeling_bert

from s3t.errors import RecipeError
from s3t.models.assembly import assemble, check_assembly
from s3t.models.encoders import TextEncoder
from s3t.models.passes import Packing, Passes, Start, fitted, pack, row_width
from s3t.recipe import recipe_from
from s3t.training.numerics import resolved
from testing import tiny
from tests.models.kinds import LLAMA, SMALL, TEXT, model_of_kind
from tests.models.test_assembly import problems_of

KINDS = TEXT | {
    "bert": None,
    "electra-projecting": TEXT["electra"] | {"embedding_size": 4},
    "llama": LLAMA,
    "modernbert": SMALL | {"max_position_embeddings": 24, "pad_token_id": 0},
}
PACKED = ["bert", "roberta", "distilbert", "electra", "electra-projecting"]

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=12)


def folder_of(kind, text_model, tmp_path):
    name = kind.removesuffix("-projecting")
    return text_model if KINDS[kind] is None else model_of_kind(name, text_model, tmp_path / "m", **KINDS[kind])


def one_row_each(mask):
    """What `pack` leaves out."""
    places = torch.arange(mask.numel()).reshape(mask.shape)
    return Packing(places, places, (mask[:, :, None] == mask[:, None, :])[:, None])


def mask_of(lengths, side):
    longest = max(lengths)
    fill = {"right": lambda one: (0, longest - one), "left": lambda one: (longest - one, 0)}[side]
    return torch.stack([pad(torch.ones(one, dtype=torch.int64), fill(one)) for one in lengths])


@given(lengths=LENGTHS)
def test_every_text_is_in_one_row_that_has_room_for_it(lengths):
    rows = fitted(lengths, max(lengths))
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    assert all(sum(lengths[number] for number in row) <= max(lengths) for row in rows)
    assert len(rows) <= max(1, 2 * sum(lengths) / max(lengths))  # no two rows are both half empty, but for one


@given(lengths=LENGTHS, side=st.sampled_from(["left", "right"]))
def test_every_token_is_found_where_it_was_laid_beside_those_of_its_text_alone(lengths, side):
    mask = mask_of(lengths, side)
    packing, (count, width) = pack(mask), mask.shape
    assert packing.taken.shape == (len(fitted(lengths, row_width(width))), row_width(width))
    text = torch.full((packing.taken.numel(),), -1)
    for number in range(count):
        for token in range(width):
            if mask[number, token]:
                place = packing.found[number, token]
                assert packing.taken.flatten()[place] == number * width + token
                assert text[place] == -1  # nothing else lies there
                text[place] = number
    text = text.reshape(packing.taken.shape)
    assert torch.equal(packing.same[:, 0], text[:, :, None] == text[:, None, :])


@torch.inference_mode()
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", PACKED)
def test_packed_logits_are_the_plain_ones(kind, attention, text_model, tmp_path):
    recipe = recipe_from(tiny.recipe(folder_of(kind, text_model, tmp_path), training={"attention": attention}))
    model, encoder = assemble(Path(recipe.base_model), recipe, labels=3)
    model.reset_head(seed=0)
    passes = Passes(model.base)
    lengths = {"mixed": (9, 1, 4, 2, 2, 7), "all alike": (3, 3, 3)}  # of the second a model makes no mask
    for texts in lengths.values():
        words = [" ".join(tiny.WORDS[start : start + length]) for start, length in enumerate(texts)]
        batch = encoder.collate(encoder.encode(pa.table({"text": words})))
        packing = pack(batch["attention_mask"]) or one_row_each(batch["attention_mask"])
        whole, states = passes.logits(batch), passes.states(batch, [0, 1, 2])
        tolerance = 1e-5 * whole.abs().max()
        assert (passes.logits(batch, packing=packing) - whole).abs().max() < tolerance
        for border, entered in states.items():
            got = passes.logits(batch, Start(border, entered), packing=packing)
            assert (got - whole).abs().max() < tolerance
        assert torch.equal(passes.logits(batch), whole)  # nothing stays behind
        if len(packing.taken) < len(words):
            seeing = packing._replace(text=torch.ones_like(packing.text))
            assert (passes.logits(batch, packing=seeing) - whole).abs().max() > 10 * tolerance


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_models_are_packed_whose_positions_lie_below_the_layers(kind, text_model, tmp_path):
    folder = folder_of(kind, text_model, tmp_path)
    recipe = recipe_from(tiny.recipe(folder))
    found = check_assembly(folder, recipe)
    assert ("packing" in found.shortcuts) is (kind in PACKED)
    assert ("packing" in resolved(recipe.training, found, cores=1).shortcuts) is (kind in PACKED)
    if kind not in PACKED:
        assert "training.shortcuts" in problems_of(folder, training={"shortcuts": ["packing"]})


def test_a_causal_model_is_not_packed(text_model, tmp_path):
    """The packing's mask would let a token see those behind it."""
    folder = model_of_kind("bert", text_model, tmp_path / "m", **SMALL, is_decoder=True)
    assert "packing" not in check_assembly(folder, recipe_from(tiny.recipe(folder))).shortcuts


def test_a_model_is_tried_under_every_attention_that_may_be_chosen(text_model, monkeypatch):
    forward = modeling_bert.eager_attention_forward

    def wrong(module, query, key, value, mask, **named):
        return forward(module, query, key, value, None if mask is None else mask[:, :, :1], **named)

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", wrong)
    for attention, packed in (("auto", False), ("eager", False), ("sdpa", True)):
        recipe = recipe_from(tiny.recipe(text_model, training={"attention": attention}))
        assert ("packing" in check_assembly(text_model, recipe).shortcuts) is packed


def test_a_model_that_sees_padding_is_refused(text_model, monkeypatch):
    collate = TextEncoder.collate
    unmasked = lambda self, records: {  # noqa: E731
        name: tensor for name, tensor in collate(self, records).items() if name != "attention_mask"
    }
    monkeypatch.setattr(TextEncoder, "collate", unmasked)
    with pytest.raises(RecipeError, match="other logits beside a longer one"):
        check_assembly(text_model, recipe_from(tiny.recipe(text_model)))


def test_images_are_not_packed(image_model):
    assert "packing" not in check_assembly(image_model, recipe_from(tiny.recipe(image_model, kind="image"))).shortcuts


def test_a_model_whose_layers_look_from_token_to_token_otherwise_is_not_packed(text_model, monkeypatch):
    """A convolution, say, of which its layers' arguments tell nothing."""
    forward = modeling_bert.BertSelfOutput.forward

    def mixed(self, hidden_states, input_tensor):
        return (
            forward(self, hidden_states, input_tensor)
            + 0.1 * torch.nn.functional.pad(input_tensor, (0, 0, 1, 0))[:, :-1]
        )

    monkeypatch.setattr(modeling_bert.BertSelfOutput, "forward", mixed)
    assert "packing" not in check_assembly(text_model, recipe_from(tiny.recipe(text_model))).shortcuts


def test_a_batch_that_is_as_it_would_be_packed_stays_as_it_is():
    assert pack(mask_of([16, 9], "right")) is None
    assert pack(mask_of([16, 7, 9], "right")) is not None
    assert pack(mask_of([15, 9], "right")) is not None
