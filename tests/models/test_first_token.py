"""A last layer that is passed for the first token alone gives the same logits and gradients, where it may be."""

import pyarrow as pa
import pytest
import torch

from s3t.models import base
from s3t.models.assembly import check_assembly
from s3t.models.passes import Start, pack
from testing import tiny
from tests.models.kinds import assembled, recipe_of

KINDS = ["bert", "roberta", "electra", "deberta-v2", "vit"]
WORDS = [" ".join(tiny.WORDS[start : start + length]) for start, length in enumerate((9, 1, 4, 2, 2, 7))]


@pytest.fixture
def passed(of_kind):
    """Makes a model whose last layer is passed whole, or for first tokens, and a batch of it."""

    def make(kind, shortcuts=("first-token",)):
        inputs = "image" if kind == "vit" else "text"
        model, encoder, records = assembled(of_kind(kind), kind=inputs, training={"shortcuts": [*shortcuts]})
        records = records[:6] if kind == "vit" else encoder.encode(pa.table({"text": WORDS}))
        return model, encoder.collate(records)

    return make


@pytest.mark.parametrize("weight", [1.0, 1e-5])
def test_a_head_that_reads_other_tokens_is_found_out(weight, text_model, monkeypatch):
    """Also one whose logits would differ by less than rounding."""
    own = base.pooled
    monkeypatch.setattr(
        base, "pooled", lambda states, mask, way: own(states, mask, way) + weight * own(states, mask, "mean")
    )
    assert "first-token" not in check_assembly(text_model, recipe_of(text_model)).shortcuts


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_gradients_are_those_of_the_whole_layer(kind, passed):
    found = {}
    for shortcuts in ((), ("first-token",)):
        model, batch = passed(kind, shortcuts)
        packings = [None, *([pack(batch["attention_mask"])] if kind in ("bert", "roberta", "electra") else [])]
        with torch.random.fork_rng(), model.mounted({}) as mount:
            torch.manual_seed(0)
            mount.add_block(1)
            trained = mount.thaw()
            with torch.no_grad():
                for parameter in trained:
                    parameter.add_(torch.randn(parameter.shape) * 0.1)
            for packing in packings:
                for border in (0, 1, 2):
                    with torch.no_grad():
                        states = model.passes.states(batch, [border])[border]
                    logits = model.passes.logits(batch, Start(border, states), packing=packing)
                    gradients = torch.autograd.grad(logits.square().sum(), trained)
                    found.setdefault(shortcuts, []).extend([logits.detach(), *gradients])
    for one, other in zip(*found.values(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5 * float(one.abs().max() + 1))


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_what_follows_the_last_attention_gets_first_tokens_alone_and_all_tokens_afterwards(kind, passed):
    (model, batch), tokens = passed(kind), []
    for layer in model.base.layers.children():
        linear = (module for module in layer.modules() if isinstance(module, torch.nn.Linear))
        widest = max(linear, key=lambda module: module.out_features)
        widest.register_forward_pre_hook(lambda _module, args: tokens.append(args[0].shape[1]))
    with torch.no_grad():
        model.passes.logits(batch)
        every = model.passes.states(batch, [model.passes.top])[model.passes.top].shape[1]
    assert every > 1
    assert tokens == [every, every, 1, every, every, every]


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_checkpoints_change_no_bit(kind, passed):
    (model, batch), found = passed(kind), []
    packing = pack(batch["attention_mask"]) if kind == "bert" else None
    with model.mounted({}) as mount:
        mount.add_block(1)
        trained = mount.thaw()
        for checkpointing in (False, True):
            logits = model.passes.logits(batch, packing=packing, checkpointing=checkpointing)
            found.append([logits.detach(), *torch.autograd.grad(logits.sum(), trained)])
    assert all(map(torch.equal, *found))
