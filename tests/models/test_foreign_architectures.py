"""Architectures that keep, pad and count otherwise than BERT and Llama: made right, or refused with the reason."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from s3t.models.assembly import assemble, check_assembly
from s3t.models.language import Decoding
from s3t.recipe import recipe_from
from testing import tiny
from testing.language import language_recipe, make_language_model
from tests.models.kinds import MODERN, assembled, model_of_kind, problems_of
from tests.slow.test_architectures import IMAGES, TEXTS, WORDS, make_model, recipe_and_table

GPT2 = {"n_embd": 8, "n_layer": 3, "n_head": 2, "n_positions": 24, "pad_token_id": 0, "initializer_range": 0.3}
WAYS = {
    "llama": "batched",
    "qwen3.5": "batched",
    "lfm2": "batched",
    "mamba": "batched",
    "mamba2": "batched",
    "rwkv": "uncached",
}


def greedy(model, prompts, *, way):
    """Tokens after each prompt: three after the first, six after the others. The last one joins late, if it can."""
    found = [[] for _ in prompts]
    with torch.inference_mode():
        decoding = Decoding(model, members=1, pad=0, cached=way != "uncached")
        for some in [[0, 1, 2], [3]] if way == "batched" else [[number] for number in range(4)]:
            going, joining = {}, some
            while going or joining:
                newest = {place: found[text][-1] for place, text in going.items()}
                (logits,) = decoding.step(newest, [prompts[text] for text in joining])
                under_way = [*going.values(), *joining]
                for text, token in zip(under_way, logits.argmax(-1).tolist(), strict=True):
                    found[text].append(token)
                going = {place: text for place, text in enumerate(under_way) if len(found[text]) < (6 if text else 3)}
                joining = [3] if decoding.joins and len(found[1]) == 4 and not found[3] else []
            if decoding.joins:
                break
    return found


def plainly(model, prompt, count):
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        for _ in range(count):
            ids = torch.cat([ids, model(input_ids=ids, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
    return ids[0, len(prompt) :].tolist()


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.integration] * (kind in ("qwen3.5", "mamba"))) for kind in WAYS]
)
def test_a_model_writes_in_the_first_way_that_is_as_whole_passes(kind, tmp_path):
    """Texts of unlike length, of which the longest ends first; two hybrids, and two models of states alone. Where all
    states are keys and values, another text joins, longer than those under way or shorter."""
    folder = make_language_model(tmp_path / "model", kind=kind)
    adapter = {"target_modules": ["in_proj"]} if "mamba" in kind else {}  # PEFT refuses others
    recipe = recipe_from(language_recipe(folder, adapter=adapter))
    way = check_assembly(folder, recipe).writing
    assert way == WAYS[kind]
    model, _ = assemble(folder, recipe, labels=1)
    for last in ([5, 4], [*range(5, 17)]):
        prompts = [[7, 9, 11, 13, 15, 17, 19], [8, 10], [21, 22, 23, 24], last]
        expected = [plainly(model.base.model, *each) for each in zip(prompts, (3, 6, 6, 6), strict=True)]
        assert greedy(model.base.model, prompts, way=way) == expected


def test_a_way_that_a_model_does_not_write_in_is_refused(tmp_path):
    folder = make_language_model(tmp_path / "model", kind="rwkv")
    told = problems_of(folder, language_recipe(folder, prediction={"writing": "batched"}))
    assert "prediction.writing: batched: this model then writes otherwise" in told


@torch.inference_mode()
def test_positions_count_from_a_texts_first_token_whatever_side_the_tokenizer_pads(text_model, tmp_path):
    folder = model_of_kind("gpt2", text_model, tmp_path / "model", **GPT2)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"padding_side": "left"}))
    model, encoder, records = assembled(folder)
    records = records[:6]
    alone = torch.cat([model.passes.logits(encoder.collate([record])) for record in records])
    torch.testing.assert_close(model.passes.logits(encoder.collate(records)), alone, rtol=1e-5, atol=1e-6)


POSITIONS = {"gpt2": GPT2, "opt": MODERN | {"ffn_dim": 16, "word_embed_proj_dim": 8}}


@pytest.mark.parametrize("kind", POSITIONS)
def test_texts_longer_than_the_positions_and_tokens_beyond_the_embeddings_are_refused_together(
    kind, text_model, tmp_path
):
    folder = model_of_kind(kind, text_model, tmp_path / "model", **POSITIONS[kind])
    check_assembly(folder, recipe_from(tiny.recipe(folder, text={"max_length": 24})))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["beyond"] = 44
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    told = problems_of(folder, text={"max_length": 25})
    assert "text.max_length: 25 exceeds the model's 24 positions" in told
    assert "1 token beyond the 44 that the model has embeddings for, such as 'beyond'" in told


def test_a_table_of_positions_that_no_configuration_tells_is_found_by_a_text_of_the_greatest_length(
    text_model, monkeypatch
):
    from transformers.models.bert import modeling_bert

    forward = modeling_bert.BertLayer.forward

    def short(self, hidden_states, *args, **named):
        _ = torch.arange(15)[hidden_states.shape[1] - 1]
        return forward(self, hidden_states, *args, **named)

    monkeypatch.setattr(modeling_bert.BertLayer, "forward", short)
    assert "fails at a text of 20 tokens (IndexError)" in problems_of(text_model)


def test_a_checkpoint_with_lacking_stray_or_broken_tensors_is_refused_with_all_of_them(text_model, tmp_path):
    folder = shutil.copytree(text_model, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    del tensors["embeddings.LayerNorm.weight"]
    query = next(name for name in tensors if "layer.1.attention.self.query.weight" in name)
    tensors[query.replace("layer.1.", "layer.7.")] = tensors[query].clone()
    tensors[query.replace("query", "value")][0, 0] = torch.inf
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    told = problems_of(folder)
    assert "lacks 1 tensor of its backbone, such as bert.embeddings.LayerNorm.weight" in told
    assert "holds 1 tensor that its layers have no place for, such as" in told
    assert "holds 1 tensor with numbers that are not finite, such as bert.encoder.layer.1.attention.self.value" in told


@pytest.mark.filterwarnings("ignore:The following .*_pattern keys:RuntimeWarning")  # PEFT, of what it took wrongly
@pytest.mark.parametrize(
    ("kind", "task", "problem"),
    [
        ("glm4_moe", TEXTS, "adapter.target_modules: PEFT adapts other modules than those of block 1: model.layers"),
        ("bart", WORDS, "base_model: BartForSequenceClassification is an encoder and a decoder"),
        ("qwen2", WORDS, "its tokenizer makes no token of common words"),
        ("resnet", IMAGES, "a resnet model (ResNetConfig) has no one stack of transformer layers"),
    ],
)
def test_what_cannot_be_adapted_is_refused_in_words(kind, task, problem, tmp_path):
    recipe, _ = recipe_and_table("llama", task, make_model(kind, task, tmp_path))
    assert problem in problems_of(Path(recipe["base_model"]), recipe)


def test_modules_of_a_hybrid_are_named_together_and_each_block_needs_one(tmp_path):
    folder = make_language_model(tmp_path / "model", kind="lfm2")
    both = recipe_from(language_recipe(folder, adapter={"target_modules": ["q_proj", "in_proj"]}))
    assert check_assembly(folder, both).writing == "batched"
    told = problems_of(folder, language_recipe(folder, adapter={"target_modules": ["q_proj"]}))
    assert "none of them is in the layers of block 1 of Lfm2ForCausalLM (2); name some of each block's" in told


def test_a_language_model_whose_head_reads_more_than_the_last_states_is_refused(llama, monkeypatch):
    from transformers.models.llama import modeling_llama

    forward = modeling_llama.LlamaModel.forward

    def looking_back(self, input_ids=None, **named):
        found = forward(self, input_ids=input_ids, **named)
        found.last_hidden_state = found.last_hidden_state + self.embed_tokens(input_ids)
        return found

    monkeypatch.setattr(modeling_llama.LlamaModel, "forward", looking_back)
    told = problems_of(llama, language_recipe(llama))
    assert "gives other logits where its head gets the last layer's states" in told
