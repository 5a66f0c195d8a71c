"""Models of many kinds, tiny and with random weights: the right ones are taken, the wrong ones named at init."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, ResNetConfig, ResNetForImageClassification

import s3t
from s3t.models.assembly import check_assembly
from s3t.models.passes import can_share
from s3t.recipe import recipe_from
from s3t.training.numerics import resolved
from testing import tiny
from tests.models.kinds import LLAMA, SMALL, TEXT, assembled, model_of_kind, problems_of, recipe_of

SPARSE = SMALL | {"max_position_embeddings": 24, "attention_type": "original_full"}
"""Of a BigBird."""


@pytest.mark.integration
@pytest.mark.parametrize("kind", TEXT)
def test_every_kind_of_text_model_goes_through_the_whole_loop_on_pairs(kind, of_kind, tmp_path):
    table = tiny.text_table().assign(other=lambda rows: rows.text)
    changes = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 2}, "training": {"epochs": 1}}
    recipe = tiny.recipe(of_kind(kind), columns={"text_pair": "other"}, **changes)
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train()
        run.delete(records=["r3"])
        assert len(run.predict(table).predicted) == 24
        run.repair()
        assert run.audit(replay=1).ok


SHORTCUTS = {
    **dict.fromkeys(("bert", "roberta", "electra", "electra, projecting"), "packing first-token"),
    "distilbert": "packing",
    **dict.fromkeys(("deberta-v2", "vit"), "first-token"),
    **dict.fromkeys(("llama", "modernbert"), ""),
}


@pytest.mark.parametrize("kind", SHORTCUTS)
def test_what_a_model_allows_is_found_out(kind, of_kind):
    """Texts are packed whose positions lie below the layers; those are cut whose head reads the first token; of models
    with the positions of DeBERTa, members share no rows, and attention is their own."""
    inputs = "image" if kind == "vit" else "text"
    model, encoder, records = assembled(of_kind(kind), kind=inputs)
    recipe = recipe_of(of_kind(kind), kind=inputs)
    found = check_assembly(of_kind(kind), recipe)
    assert (found.trunk, found.sdpa, found.shortcuts) == (True, kind != "deberta-v2", SHORTCUTS[kind].split())
    assert resolved(recipe.training, found, cores=1).shortcuts == found.shortcuts
    assert can_share(model.base, encoder.collate(records[:1])) == (kind != "deberta-v2")


def test_a_shortcut_that_a_model_does_not_allow_is_refused_and_other_heads_have_no_first_token(of_kind, text_model):
    assert "training.shortcuts" in problems_of(of_kind("llama"), training={"shortcuts": ["packing"]})
    assert "training.shortcuts" in problems_of(of_kind("distilbert"), training={"shortcuts": ["first-token"]})
    pooled = [recipe_of(text_model, text={"pooling": way, "max_length": 20}) for way in ("mean", "last")]
    for recipe in (*pooled, recipe_from(tiny.tagging_recipe(text_model))):
        assert check_assembly(text_model, recipe).shortcuts == ["packing"]


WIDE = {
    "distilbert": TEXT["distilbert"] | {"dim": 12},
    "llama": LLAMA | {"hidden_size": 12, "head_dim": 4, "intermediate_size": 28},
}


@pytest.mark.parametrize("kind", WIDE)
def test_a_models_width_is_that_of_its_hidden_states(kind, text_model, tmp_path):
    folder = model_of_kind(kind, text_model, tmp_path / "model", **WIDE[kind])
    assert check_assembly(folder, recipe_of(folder)).width == 12


@torch.inference_mode()
def test_a_decoder_without_a_pad_id_takes_its_tokenizers(of_kind):
    """It reads the logits at a text's last token: padding after it changes nothing."""
    model, encoder, records = assembled(of_kind("llama"))
    alone = torch.cat([model.passes.logits(encoder.collate([record])) for record in records[:6]])
    torch.testing.assert_close(model.passes.logits(encoder.collate(records[:6])), alone, rtol=1e-5, atol=1e-6)


def test_a_model_of_another_modality_or_without_transformer_layers_is_refused(text_model, image_model, tmp_path):
    assert "cannot be used for image-classification" in problems_of(text_model, kind="image")
    assert "cannot be used for text-classification" in problems_of(image_model)
    config = ResNetConfig(embedding_size=4, hidden_sizes=[4, 4], depths=[1, 1], num_channels=1)
    ResNetForImageClassification(config).save_pretrained(tmp_path / "resnet")
    assert "no one stack of transformer layers" in problems_of(tmp_path / "resnet", kind="image")


def test_a_model_without_linear_modules_in_its_layers_is_refused(text_model, tmp_path, monkeypatch):
    settings = {"n_embd": 8, "n_layer": 3, "n_head": 2, "n_positions": 24, "pad_token_id": 0}
    model = model_of_kind("gpt2", text_model, tmp_path / "model", auto=AutoModelForCausalLM, **settings)
    monkeypatch.setattr("s3t.models.base.replace_conv1d", lambda model: None)  # which leaves no other module
    assert "no linear modules" in problems_of(model)


def test_a_model_whose_attention_hangs_on_what_it_saw_is_refused(text_model, tmp_path):
    settings = SPARSE | {"attention_type": "block_sparse"}
    assert "original_full" in problems_of(model_of_kind("big_bird", text_model, tmp_path / "sparse", **settings))


def test_a_checkpoint_of_another_shape_is_refused(text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    whole = load_file(folder / "model.safetensors")
    name = next(name for name in whole if "position_embeddings" in name)
    save_file(whole | {name: torch.zeros(9, 8)}, folder / "model.safetensors")
    assert "lacks" in problems_of(folder)


def without(part, folder):
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if part not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_a_checkpoint_may_lack_a_pooler_and_no_projection_below_the_layers(text_model, tmp_path):
    """A pooler that nothing reads may be drawn; a projection would be random below all that was learned."""
    folder = without("pooler", model_of_kind("big_bird", text_model, tmp_path / "big-bird", **SPARSE))
    check_assembly(folder, recipe_from(tiny.tagging_recipe(folder)))
    folder = model_of_kind("electra", text_model, tmp_path / "electra", **TEXT["electra"] | {"embedding_size": 4})
    told = problems_of(without("embeddings_project", folder))
    assert "lacks 2 tensors of its backbone, such as electra.embeddings_project.bias; it is not a checkpoint" in told


def test_a_text_as_long_as_the_positions_allow_passes_and_a_longer_one_is_refused(of_kind):
    check_assembly(of_kind("roberta"), recipe_of(of_kind("roberta"), text={"max_length": 25}))
    assert "exceeds the model's 25 positions" in problems_of(of_kind("roberta"), text={"max_length": 26})


def test_a_model_that_looks_below_the_border_again_keeps_no_trunk(text_model, monkeypatch):
    """One whose last layer is given what the embeddings were, say."""
    from transformers.models.bert import modeling_bert

    forward = modeling_bert.BertEncoder.forward

    def looking_back(self, hidden_states, *args, **named):
        outputs = forward(self, hidden_states, *args, **named)
        outputs.last_hidden_state = outputs.last_hidden_state + hidden_states
        return outputs

    monkeypatch.setattr(modeling_bert.BertEncoder, "forward", looking_back)
    assert not check_assembly(text_model, recipe_of(text_model)).trunk
    assert "trunk_cache" in problems_of(text_model, training={"trunk_cache": True})
