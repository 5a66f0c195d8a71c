"""Models of many kinds, tiny and with random weights: the right ones are taken, the wrong ones named at init."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, ResNetConfig, ResNetForImageClassification

import s3t
from s3t.errors import RecipeError
from s3t.models.assembly import assemble, check_assembly
from s3t.recipe import recipe_from
from s3t.records.ingest import ingest
from testing import tiny
from tests.models.kinds import LLAMA, SMALL, TEXT, model_of_kind


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.integration] * (kind != "deberta-v2")) for kind in TEXT]
)
def test_every_kind_of_text_model_goes_through_the_whole_loop_on_pairs(kind, text_model, tmp_path):
    model = model_of_kind(kind, text_model, tmp_path / "model", **TEXT[kind])
    table = tiny.text_table().assign(other=lambda rows: rows.text)
    recipe = tiny.recipe(model, columns={"text_pair": "other"}, partition={"shards": 1}, sequences={"budget": 2})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        run.train()
        run.delete(records=["r3"])
        assert len(run.predict(table).predicted) == 24
        run.repair()
        assert run.audit(replay=2).ok


WIDE = {
    "roberta": TEXT["roberta"] | {"hidden_size": 12},
    "distilbert": TEXT["distilbert"] | {"dim": 12},
    "llama": LLAMA | {"hidden_size": 12, "head_dim": 4, "intermediate_size": 28},
    "modernbert": SMALL | {"hidden_size": 12, "max_position_embeddings": 24, "pad_token_id": 0},
}


@pytest.mark.parametrize("kind", WIDE)
def test_a_models_width_is_that_of_its_hidden_states(kind, text_model, tmp_path):
    folder = model_of_kind(kind, text_model, tmp_path / "model", **WIDE[kind])
    assert check_assembly(folder, recipe_from(tiny.recipe(folder))).width == 12


@torch.inference_mode()
def test_a_decoder_without_a_pad_id_takes_its_tokenizers(text_model, tmp_path):
    """It reads the logits at a text's last token: padding after it changes nothing."""
    folder = model_of_kind("llama", text_model, tmp_path / "model", **LLAMA)
    recipe = recipe_from(tiny.recipe(folder))
    model, encoder = assemble(folder, recipe, labels=3)
    model.reset_head(seed=0)
    records = encoder.encode(ingest(tiny.text_table(6), recipe).rows)
    alone = torch.cat([model.passes.logits(encoder.collate([record])) for record in records])
    torch.testing.assert_close(model.passes.logits(encoder.collate(records)), alone, rtol=1e-5, atol=1e-6)


def problems_of(model, **changes):
    with pytest.raises(RecipeError) as caught:
        check_assembly(model, recipe_from(tiny.recipe(model, **changes)))
    return " | ".join(caught.value.problems)


def test_a_model_of_another_modality_is_refused(text_model, image_model):
    assert "cannot be used for image-classification" in problems_of(text_model, kind="image")
    assert "cannot be used for text-classification" in problems_of(image_model)


def test_a_model_without_transformer_layers_is_refused(tmp_path):
    config = ResNetConfig(embedding_size=4, hidden_sizes=[4, 4], depths=[1, 1], num_channels=1)
    ResNetForImageClassification(config).save_pretrained(tmp_path / "resnet")
    assert "no one stack of transformer layers" in problems_of(tmp_path / "resnet", kind="image")


def test_a_model_without_linear_modules_in_its_layers_is_refused(text_model, tmp_path, monkeypatch):
    settings = {"n_embd": 8, "n_layer": 3, "n_head": 2, "n_positions": 24, "pad_token_id": 0}
    model = model_of_kind("gpt2", text_model, tmp_path / "model", auto=AutoModelForCausalLM, **settings)
    monkeypatch.setattr("s3t.models.base.replace_conv1d", lambda model: None)  # which leaves no other module
    assert "no linear modules" in problems_of(model)


def test_a_model_whose_attention_hangs_on_what_it_saw_is_refused(text_model, tmp_path):
    settings = SMALL | {"max_position_embeddings": 24}
    model = model_of_kind("big_bird", text_model, tmp_path / "sparse", **settings, attention_type="block_sparse")
    assert "original_full" in problems_of(model)
    model = model_of_kind("big_bird", text_model, tmp_path / "full", **settings, attention_type="original_full")
    check_assembly(model, recipe_from(tiny.recipe(model)))


def test_a_checkpoint_that_lacks_layers_or_has_another_shape_is_refused(text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    whole = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in whole.items() if "layer.1." not in name}, folder / "model.safetensors")
    assert "lacks" in problems_of(folder)
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
    settings = SMALL | {"max_position_embeddings": 24, "attention_type": "original_full"}
    folder = without("pooler", model_of_kind("big_bird", text_model, tmp_path / "big-bird", **settings))
    check_assembly(folder, recipe_from(tiny.tagging_recipe(folder)))
    folder = model_of_kind("electra", text_model, tmp_path / "electra", **TEXT["electra"] | {"embedding_size": 4})
    check_assembly(folder, recipe_from(tiny.recipe(folder)))
    told = problems_of(without("embeddings_project", folder))
    assert "lacks 2 tensors of its backbone, such as electra.embeddings_project.bias; it is not a checkpoint" in told


def test_a_text_as_long_as_the_positions_allow_passes_and_a_longer_one_is_refused(text_model, tmp_path):
    model = model_of_kind("roberta", text_model, tmp_path / "model", **TEXT["roberta"])
    check_assembly(model, recipe_from(tiny.recipe(model, text={"max_length": 25})))
    assert "exceeds the model's 25 positions" in problems_of(model, text={"max_length": 26})


@pytest.mark.parametrize("kind", [*TEXT, "llama"])
def test_the_trunk_of_every_kind_can_be_kept(kind, text_model, tmp_path):
    model = model_of_kind(kind, text_model, tmp_path / "model", **(TEXT | {"llama": LLAMA})[kind])
    found = check_assembly(model, recipe_from(tiny.recipe(model)))
    assert found.trunk
    assert found.sdpa is (kind != "deberta-v2")


def test_a_model_that_looks_below_the_border_again_keeps_no_trunk(text_model, monkeypatch):
    """One whose last layer is given what the embeddings were, say."""
    from transformers.models.bert import modeling_bert

    forward = modeling_bert.BertEncoder.forward

    def looking_back(self, hidden_states, *args, **named):
        outputs = forward(self, hidden_states, *args, **named)
        outputs.last_hidden_state = outputs.last_hidden_state + hidden_states
        return outputs

    assert check_assembly(text_model, recipe_from(tiny.recipe(text_model))).trunk
    monkeypatch.setattr(modeling_bert.BertEncoder, "forward", looking_back)
    assert not check_assembly(text_model, recipe_from(tiny.recipe(text_model))).trunk
    assert "trunk_cache" in problems_of(text_model, training={"trunk_cache": True})
