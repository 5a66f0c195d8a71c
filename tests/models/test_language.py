"""Language models: what is learned of a record, and every decoder against transformers and PEFT."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from transformers import AutoConfig, Gemma3Config

from s3t.errors import DataError, RecipeError
from s3t.models.assembly import assemble, check_assembly
from s3t.models.language import LanguageEncoder
from s3t.models.layers import block_modules
from s3t.models.packing import pack
from s3t.models.passes import HEAD_TOKENS
from s3t.recipe import Language, recipe_from
from s3t.tasks.task import ANSWERED
from testing.language import DECODERS, VOCABULARY, language_recipe, make_language_model, prompt_table
from testing.plain import copy_with, random_chain

DENSE = [kind for kind in DECODERS if kind != "mixtral"]
END, BEGIN = VOCABULARY.index("</s>"), VOCABULARY.index("<s>")


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return make_language_model(tmp_path_factory.mktemp("llama"))


def words(ids):
    return [VOCABULARY[number] for number in ids]


def learned(encoder, **columns):
    """The tokens that are learned of a record."""
    (record,) = encoder.encode(pa.table({name: [value] for name, value in columns.items()}))
    return words(record["input_ids"][1:][record[ANSWERED][:-1]].tolist())


def test_of_a_prompt_and_its_completion_the_completion_and_the_end_are_learned(llama):
    encoder = LanguageEncoder(llama, Language())
    (record,) = encoder.encode(pa.table({"prompt": ["w1 w2"], "completion": ["w3"]}))
    assert words(record["input_ids"].tolist()) == ["w1", "w2", "w3", "</s>"]
    assert learned(encoder, prompt="w1 w2", completion="w3") == ["w3", "</s>"]


def test_all_tokens_but_the_first_can_be_learned(llama):
    encoder = LanguageEncoder(llama, Language(loss="all"))
    assert learned(encoder, prompt="w1 w2", completion="w3") == ["w2", "w3", "</s>"]
    assert learned(LanguageEncoder(llama, Language()), text="w1 w2 w3") == ["w2", "w3", "</s>"]


CHAT = [
    {"role": "system", "content": "w9"},
    {"role": "user", "content": "w1"},
    {"role": "assistant", "content": "w2 w3"},
    {"role": "user", "content": "w4"},
    {"role": "assistant", "content": "w5"},
]


def test_of_a_chat_the_turns_of_the_assistant_are_learned_as_the_template_writes_them(llama):
    encoder = LanguageEncoder(llama, Language(), roles=["messages"])
    assert learned(encoder, messages=json.dumps(CHAT)) == ["w2", "w3", "</s>", "w5", "</s>"]
    whole = encoder.tokenizer.apply_chat_template(CHAT, tokenize=True)["input_ids"]
    (record,) = encoder.encode(pa.table({"messages": [json.dumps(CHAT)]}))
    assert record["input_ids"].tolist() == list(whole)


def test_a_prompt_ends_where_the_learned_completion_begins(llama):
    encoder = LanguageEncoder(llama, Language(), roles=["messages"])
    rows = pa.table({"messages": [json.dumps(CHAT)]})
    asked = pa.table({"messages": [json.dumps(CHAT[:2])]})
    (prompt,), (record,) = encoder.prompts(asked), encoder.encode(rows)
    assert record["input_ids"].tolist()[: len(prompt)] == prompt
    assert record[ANSWERED].tolist().index(True) == len(prompt) - 1


def test_longer_records_are_cut_and_counted_and_so_are_those_with_nothing_left_to_learn(llama):
    encoder = LanguageEncoder(llama, Language(max_length=3))
    rows = pa.table({"prompt": ["w1", "w1 w2", "w1 w2 w3 w4"], "completion": ["w5", "w5", "w5"]})
    assert encoder.cut(rows) == (2, 1)
    assert encoder.answers(rows) == [2, 1, 0]
    assert [len(record["input_ids"]) for record in encoder.encode(rows)] == [3, 3, 3]
    assert [len(encoder.places(record)) for record in encoder.encode(rows)] == [2, 1, 0]


def test_a_chat_that_the_template_refuses_is_named_without_a_word_of_it(llama, tmp_path):
    encoder = LanguageEncoder(llama, Language(), roles=["messages"])
    refusing = "{% if messages[0]['role'] != 'user' %}{{ raise_exception(messages[0]['content']) }}{% endif %}"
    encoder.tokenizer.chat_template = refusing
    with pytest.raises(DataError, match="refuses a chat of 5 messages") as error:
        encoder.encode(pa.table({"messages": [json.dumps(CHAT)]}))
    assert "w9" not in str(error.value)


def test_a_template_that_writes_a_turn_anew_once_another_follows_is_refused(llama):
    encoder = LanguageEncoder(llama, Language(), roles=["messages"])
    encoder.tokenizer.chat_template = "{{ messages | length }}{% for m in messages %} {{ m['content'] }}{% endfor %}"
    with pytest.raises(DataError, match="once another follows"):
        encoder.encode(pa.table({"messages": [json.dumps(CHAT)]}))


def test_a_model_without_what_the_records_need_is_refused(tmp_path):
    folder = make_language_model(tmp_path / "plain", chat=False)
    with pytest.raises(RecipeError, match="no chat template"):
        LanguageEncoder(folder, Language(), roles=["messages"])
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"eos_token": None}))
    with pytest.raises(RecipeError, match="no end-of-text token"):
        LanguageEncoder(folder, Language())


def test_experts_and_records_longer_than_the_model_are_refused_together(tmp_path):
    folder = make_language_model(tmp_path / "experts", kind="mixtral")
    recipe = recipe_from(language_recipe(folder, language={"max_length": 49}))
    with pytest.raises(RecipeError) as error:
        check_assembly(folder, recipe)
    assert "mixture of experts" in str(error.value)
    assert "language.max_length: 49 exceeds the model's 48 positions" in str(error.value)


def test_a_model_of_texts_and_images_is_refused_with_the_configuration_that_is_wanted(tmp_path):
    """And the language model inside it, by itself, is none of those."""
    folder = make_language_model(tmp_path / "text", kind="gemma3")
    recipe = recipe_from(language_recipe(folder))
    text = AutoConfig.from_pretrained(folder)
    both = Gemma3Config(text_config=text.to_dict(), vision_config={"hidden_size": 8, "num_attention_heads": 2})
    assert check_assembly(folder, recipe).trunk
    both.save_pretrained(folder)
    with pytest.raises(RecipeError) as error:
        check_assembly(folder, recipe)
    (problem,) = error.value.problems
    assert "a gemma3 model (Gemma3Config) is a language model and a part for images" in problem
    assert '"model_type": "gemma3_text"' in problem


def loaded(folder, **changes):
    recipe = recipe_from(language_recipe(folder, **changes))
    model, encoder = assemble(folder, recipe, labels=1)
    table = prompt_table()
    rows = pa.table({name: table[name].tolist() for name in ("prompt", "completion")})
    return model, encoder, encoder.encode(rows)


@pytest.mark.parametrize("kind", DENSE)
def test_every_decoder_answers_as_with_peft_from_every_border(kind, tmp_path):
    """Blocks of PEFT on a copy, transformers' own forward pass, and log-probabilities taken from its whole logits."""
    model, encoder, records = loaded(make_language_model(tmp_path / kind, kind=kind))
    assert model.base.head == ()
    batch = encoder.collate(records[:5])
    chain = random_chain(model, 2, seed=3)
    with torch.no_grad():
        whole = copy_with(model, chain)(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        expected = whole[:, :-1].log_softmax(-1).gather(2, batch["input_ids"][:, 1:, None])[batch[ANSWERED][:, :-1]]
        trunk = model.passes.states(batch, [model.border(2)])[model.border(2)]
        with model.mounted(chain):
            at_once = model.passes.answers(batch)
            entered = model.passes.answers(batch, border=model.border(2), states=trunk)
    assert torch.allclose(at_once, expected, atol=1e-5)
    assert torch.allclose(entered, expected, atol=1e-5)


@pytest.mark.parametrize("kind", DENSE)
def test_packed_texts_are_blind_to_each_other_or_no_model_packs(kind, tmp_path):
    folder = make_language_model(tmp_path / kind, kind=kind)
    recipe = recipe_from(language_recipe(folder))
    packs = check_assembly(folder, recipe).packing
    assert packs == (kind not in ("falcon", "opt"))
    if not packs:
        return
    model, encoder, records = loaded(folder)
    batch = encoder.collate(records[:8])
    packing = pack(batch["attention_mask"])
    with torch.no_grad():
        alone = torch.cat([model.passes.logits(encoder.collate([record])) for record in records[:8]])
        packed = model.passes.logits(batch, packing=packing)
    assert torch.allclose(packed, alone, atol=1e-5)


def test_gpt2s_transposed_modules_are_linear_ones_with_the_same_results(tmp_path):
    from transformers import AutoModelForCausalLM

    folder = make_language_model(tmp_path / "gpt2", kind="gpt2")
    model, encoder, records = loaded(folder)
    batch = encoder.collate(records[:3])
    own = AutoModelForCausalLM.from_pretrained(folder).eval()
    with torch.no_grad():
        whole = own(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[batch[ANSWERED]]
        assert torch.allclose(model.passes.logits(batch), whole, atol=1e-5)
    names = {name.rpartition(".")[2] for name in block_modules(model.base.model, model.base.layers, model.adapter, 1)}
    assert names == {"c_attn", "c_proj", "c_fc"}


def test_logits_are_made_a_part_at_a_time(llama, monkeypatch):
    model, encoder, records = loaded(llama)
    batch, sizes = encoder.collate(records), []
    layer = model.base.model.get_output_embeddings()
    layer.register_forward_hook(lambda _module, _args, output: sizes.append(output.shape[0] * output.shape[1]))
    with torch.no_grad():
        whole = model.passes.answers(batch)
        monkeypatch.setattr("s3t.models.passes.HEAD_TOKENS", 7)
        parts = model.passes.answers(batch)
    assert sizes[0] == len(whole) < HEAD_TOKENS
    assert max(sizes[1:]) == 7
    assert np.allclose(whole, parts, atol=1e-6)
