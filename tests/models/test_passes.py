"""A pass that starts at a border gives what the whole pass gives, for every architecture."""

import pytest
import torch

from s3t.models.passes import Passes, Start
from tests.models.kinds import KINDS, assembled


@torch.inference_mode()
@pytest.mark.parametrize("kind", KINDS)
def test_from_every_border_on_the_logits_are_those_of_the_whole_pass(kind, of_kind):
    """Also from states of each record alone."""
    model, encoder, records = assembled(of_kind(kind), kind="image" if kind == "vit" else "text")
    passes, batch = Passes(model.base), encoder.collate(records[:6])
    whole = passes.logits(batch)
    found = passes.states(batch, [0, 1, 2, 3])
    for border, states in found.items():
        assert torch.equal(passes.logits(batch, Start(border, states)), whole), border
        for later in range(border, 4):
            assert torch.equal(passes.states(batch, [later], Start(border, states))[later], found[later])
        alone = [passes.states(encoder.collate([record]), [border])[border][0] for record in records[:6]]
        padded = torch.nn.utils.rnn.pad_sequence(alone, batch_first=True)
        torch.testing.assert_close(passes.logits(batch, Start(border, padded)), whole, rtol=1e-5, atol=1e-6)
    assert torch.equal(passes.logits(batch), whole)  # nothing stays behind


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["text", "image"])
def test_what_lies_below_a_border_is_not_computed(kind, text_model, image_model):
    model, encoder, records = assembled(text_model if kind == "text" else image_model, kind=kind)
    batch, ran = encoder.collate(records[:2]), []
    states = model.passes.states(batch, [0, 2])[2]
    for index, layer in enumerate(model.base.layers.children()):
        inner = next(module for module in layer.modules() if isinstance(module, torch.nn.Linear))
        inner.register_forward_hook(lambda *_, index=index: ran.append(index))
    model.passes.logits(batch, Start(2, states))
    assert set(ran) == {2}
