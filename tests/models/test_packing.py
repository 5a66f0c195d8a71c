"""Texts that share a row are blind to each other, and every model for which that may not be so is found out."""

import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad
from transformers.models.bert import modeling_bert

from s3t.models.assembly import check_assembly
from s3t.models.encoders import TextEncoder
from s3t.models.passes import Packing, Passes, Start, fitted, pack, row_width
from testing import tiny
from tests.models.kinds import SMALL, assembled, model_of_kind, problems_of, recipe_of

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=12)


def one_row_each(mask):
    """What `pack` leaves out."""
    places = torch.arange(mask.numel()).reshape(mask.shape)
    return Packing(places, places, (mask[:, :, None] == mask[:, None, :])[:, None])


def mask_of(lengths, side="right"):
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
@pytest.mark.parametrize("kind", ["bert", "distilbert", "electra, projecting"])
def test_packed_logits_are_the_plain_ones(kind, attention, of_kind):
    model, encoder, _ = assembled(of_kind(kind), training={"attention": attention})
    passes = Passes(model.base)
    for lengths in ((9, 1, 4, 2, 2, 7), (3, 3, 3)):  # of the second a model makes no mask
        words = [" ".join(tiny.WORDS[start : start + length]) for start, length in enumerate(lengths)]
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


def packed(folder, **training):
    return "packing" in check_assembly(folder, recipe_of(folder, training=training)).shortcuts


def test_a_causal_model_is_not_packed(text_model, tmp_path):
    """The packing's mask would let a token see those behind it."""
    assert not packed(model_of_kind("bert", text_model, tmp_path / "m", **SMALL, is_decoder=True))


def test_a_model_is_tried_under_every_attention_that_may_be_chosen(text_model, monkeypatch):
    forward = modeling_bert.eager_attention_forward

    def wrong(module, query, key, value, mask, **named):
        return forward(module, query, key, value, None if mask is None else mask[:, :, :1], **named)

    monkeypatch.setattr(modeling_bert, "eager_attention_forward", wrong)
    assert [packed(text_model, attention=each) for each in ("auto", "eager", "sdpa")] == [False, False, True]


def test_a_model_that_sees_padding_is_refused(text_model, monkeypatch):
    collate = TextEncoder.collate
    unmasked = lambda self, records: {  # noqa: E731
        name: tensor for name, tensor in collate(self, records).items() if name != "attention_mask"
    }
    monkeypatch.setattr(TextEncoder, "collate", unmasked)
    assert "other logits beside a longer one" in problems_of(text_model)


def test_a_model_whose_layers_look_from_token_to_token_otherwise_is_not_packed(text_model, monkeypatch):
    """A convolution, say, of which its layers' arguments tell nothing."""
    forward = modeling_bert.BertSelfOutput.forward

    def mixed(self, states, given):
        return forward(self, states, given) + 0.1 * pad(given, (0, 0, 1, 0))[:, :-1]

    monkeypatch.setattr(modeling_bert.BertSelfOutput, "forward", mixed)
    assert not packed(text_model)


def test_a_batch_that_is_as_it_would_be_packed_stays_as_it_is():
    assert pack(mask_of([16, 9])) is None
    assert pack(mask_of([16, 7, 9])) is not None
    assert pack(mask_of([15, 9])) is not None
