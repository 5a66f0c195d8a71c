"""A last layer that is passed for the first token alone gives the same logits and gradients, where it may be."""

from pathlib import Path

import pyarrow as pa
import pytest
import torch

from s3t.models import base
from s3t.models.assembly import assemble, check_assembly
from s3t.models.passes import Start, pack
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from s3t.training.numerics import resolved
from testing import tiny
from tests.models.kinds import LLAMA, SMALL, TEXT, model_of_kind
from tests.models.test_assembly import problems_of

KINDS = TEXT | {
    "bert": None,
    "llama": LLAMA,
    "modernbert": SMALL | {"max_position_embeddings": 24, "pad_token_id": 0},
}
FIRST = ["bert", "roberta", "electra", "deberta-v2"]
WORDS = [" ".join(tiny.WORDS[start : start + length]) for start, length in enumerate((9, 1, 4, 2, 2, 7))]


def folder_of(kind, text_model, tmp_path):
    return text_model if KINDS[kind] is None else model_of_kind(kind, text_model, tmp_path / "m", **KINDS[kind])


def assembled(fields, way, **training):
    shortcuts = {"shortcuts": ["first-token"] if way == "first-token" else []}
    recipe = recipe_from(fields | {"training": fields.get("training", {}) | training | shortcuts})
    model, encoder = assemble(Path(recipe.base_model), recipe, labels=3)
    model.reset_head(seed=0)
    return model, encoder, recipe


def batch_of(kind, encoder, recipe):
    if kind == "vit":
        return encoder.collate(encoder.encode(ingest(tiny.image_table(), recipe).rows)[:6])
    return encoder.collate(encoder.encode(pa.table({"text": WORDS})))


def fields_of(kind, text_model, image_model, tmp_path):
    if kind == "vit":
        return tiny.recipe(image_model, kind="image")
    return tiny.recipe(folder_of(kind, text_model, tmp_path))


@pytest.mark.integration
@pytest.mark.parametrize("kind", KINDS)
def test_models_are_cut_whose_head_reads_the_first_token_and_whose_layers_allow_it(kind, text_model, tmp_path):
    folder = folder_of(kind, text_model, tmp_path)
    recipe = recipe_from(tiny.recipe(folder))
    abilities = check_assembly(folder, recipe)
    assert ("first-token" in abilities.shortcuts) is (kind in FIRST)
    assert ("first-token" in resolved(recipe.training, abilities, cores=1).shortcuts) is (kind in FIRST)
    for other in {"mean", "last"}:
        read = recipe_from(tiny.recipe(folder, text={"pooling": other, "max_length": 20}))
        assert "first-token" not in check_assembly(folder, read).shortcuts
    if kind not in FIRST:
        assert "training.shortcuts" in problems_of(folder, training={"shortcuts": ["first-token"]})


def test_images_are_cut_and_words_with_tags_are_not(text_model, image_model):
    assert "first-token" in check_assembly(image_model, recipe_from(tiny.recipe(image_model, kind="image"))).shortcuts
    assert "first-token" not in check_assembly(text_model, recipe_from(tiny.tagging_recipe(text_model))).shortcuts


@pytest.mark.parametrize("weight", [1.0, 1e-5])
def test_a_head_that_reads_other_tokens_is_found_out(weight, text_model, monkeypatch):
    """Also one whose logits would differ by less than rounding."""
    own = base.pooled
    monkeypatch.setattr(
        base, "pooled", lambda states, mask, way: own(states, mask, way) + weight * own(states, mask, "mean")
    )
    assert "first-token" not in check_assembly(text_model, recipe_from(tiny.recipe(text_model))).shortcuts


@pytest.mark.parametrize("kind", [*FIRST, "vit"])
def test_logits_and_gradients_are_those_of_the_whole_layer(kind, text_model, image_model, tmp_path):
    fields = fields_of(kind, text_model, image_model, tmp_path)
    found = {}
    for way in ("whole", "first-token"):
        model, encoder, recipe = assembled(fields, way)
        batch = batch_of(kind, encoder, recipe)
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
                    found.setdefault(way, []).extend([logits.detach(), *gradients])
    assert len(found["whole"]) > 9
    for one, other in zip(found["whole"], found["first-token"], strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5 * float(one.abs().max() + 1))


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_what_follows_the_last_attention_gets_first_tokens_alone_and_all_tokens_afterwards(
    kind, text_model, image_model, tmp_path
):
    model, encoder, recipe = assembled(fields_of(kind, text_model, image_model, tmp_path), "first-token")
    batch, tokens = batch_of(kind, encoder, recipe), []
    layers = list(model.base.layers.children())
    widest = [
        max((each for each in layer.modules() if isinstance(each, torch.nn.Linear)), key=wide) for layer in layers
    ]
    for module in widest:
        module.register_forward_pre_hook(lambda _module, args: tokens.append(args[0].shape[1]))
    with torch.no_grad():
        model.passes.logits(batch)
        top = model.passes.states(batch, [model.passes.top])[model.passes.top]
    every = top.shape[1]
    assert every > 1
    assert tokens == [every, every, 1, every, every, every]


def wide(module):
    return module.out_features


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_checkpoints_change_no_bit(kind, text_model, image_model, tmp_path):
    model, encoder, recipe = assembled(fields_of(kind, text_model, image_model, tmp_path), "first-token")
    batch, found = batch_of(kind, encoder, recipe), []
    packing = pack(batch["attention_mask"]) if kind == "bert" else None
    with model.mounted({}) as mount:
        mount.add_block(1)
        trained = mount.thaw()
        for checkpointing in (False, True):
            logits = model.passes.logits(batch, packing=packing, checkpointing=checkpointing)
            found.append([logits.detach(), *torch.autograd.grad(logits.sum(), trained)])
    assert all(map(torch.equal, *found))
