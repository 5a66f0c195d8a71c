"""Language models: what is learned of a record, and every decoder against transformers and PEFT."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import AutoConfig, AutoTokenizer, Gemma3Config, PreTrainedTokenizerFast

from s3t.errors import DataError, RecipeError
from s3t.models.assembly import assemble, check_assembly
from s3t.models.language import LanguageEncoder, dated
from s3t.models.layers import block_modules
from s3t.models.passes import HEAD_TOKENS, Start, pack
from s3t.recipe import Language, recipe_from
from s3t.tasks.task import ANSWERED
from testing import tokens
from testing.language import DECODERS, VOCABULARY, language_recipe, make_language_model, prompt_table
from testing.plain import copy_with, random_chain

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
    assert encoder.cut(rows) == ([False, True, True], 1)
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


@pytest.mark.parametrize("drawn", ["{{ ['a', 'b'] | random }}", "{{ [1, 2]|random() }}", "{{ lipsum(1) }}"])
def test_a_template_that_draws_at_random_is_refused(drawn, tmp_path):
    folder = tokens.byte_level(tmp_path, tokens.CHATML + drawn)
    with pytest.raises(RecipeError, match="draws at random"):
        LanguageEncoder(folder, Language(), roles=["messages"])
    LanguageEncoder(folder, Language())


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


def test_quantised_experts_and_records_longer_than_the_model_are_refused_together(tmp_path):
    folder = make_language_model(tmp_path / "experts", kind="mixtral")
    recipe = recipe_from(language_recipe(folder, language={"max_length": 49}, training={"quantization": "4bit"}))
    with pytest.raises(RecipeError) as error:
        check_assembly(folder, recipe)
    assert "most weights of MixtralForCausalLM are its experts'" in str(error.value)
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


@pytest.mark.parametrize("kind", DECODERS)
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
            entered = model.passes.answers(batch, Start(model.border(2), trunk))
    assert torch.allclose(at_once, expected, atol=1e-5)
    assert torch.allclose(entered, expected, atol=1e-5)


@pytest.mark.parametrize("kind", DECODERS)
def test_packed_texts_are_blind_to_each_other_or_no_model_packs(kind, tmp_path):
    folder = make_language_model(tmp_path / kind, kind=kind)
    recipe = recipe_from(language_recipe(folder))
    packs = "packing" in check_assembly(folder, recipe).shortcuts
    assert packs == (kind not in ("falcon", "opt", "openai-gpt"))
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
    names = {name.rpartition(".")[2] for name in block_modules(model.base.model, model.base.path, model.adapter, 1)}
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


def table_of(*chats):
    return pa.table({"messages": [json.dumps(chat) for chat in chats]})


def turns(*contents):
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(contents)]


@pytest.mark.parametrize("kind", ["byte-level", "byte-fallback"])
def test_a_chat_has_the_tokens_of_transformers_and_every_prompt_is_its_beginning(kind, tmp_path):
    if kind == "byte-level":
        folder = tokens.byte_level(tmp_path, tokens.CHATML)
    else:
        folder = tokens.byte_fallback(tmp_path, tokens.LLAMA2)
    own = AutoTokenizer.from_pretrained(folder)
    encoder = LanguageEncoder(folder, Language(), roles=["messages"])
    for chat in (
        turns("the x", "the y"),
        turns("a", "b c", "漢 😀", " the z "),
        turns("th", "t", "h", "</s", "x", "y"),
    ):
        (record,) = encoder.encode(table_of(chat))
        ids = record["input_ids"].tolist()
        assert ids == own.apply_chat_template(chat)["input_ids"]
        for place in range(1, len(chat), 2):
            (prompt,) = encoder.prompts(table_of(chat[:place]))
            assert prompt == own.apply_chat_template(chat[:place], add_generation_prompt=True)["input_ids"]
            assert ids[: len(prompt)] == prompt
            assert record[ANSWERED][len(prompt) - 1]


def test_where_a_token_would_reach_from_the_request_into_the_answer_the_chat_is_cut(tmp_path):
    folder = tokens.byte_level(tmp_path, tokens.CHATML)
    encoder = LanguageEncoder(folder, Language(), roles=["messages"])
    chat = turns("a", "\n\nthe", "b", "c")
    (record,), (prompt,) = encoder.encode(table_of(chat)), encoder.prompts(table_of(chat[:1]))
    ids = record["input_ids"].tolist()
    assert ids[: len(prompt)] == prompt
    assert encoder.tokenizer.decode(ids) == encoder.tokenizer.apply_chat_template(chat, tokenize=False)
    (later,) = encoder.prompts(table_of(chat[:3]))
    assert ids[: len(later)] == later


def test_turns_are_learned_where_the_end_of_the_text_follows_the_last_one_alone(tmp_path):
    """As Phi-3's template has it."""
    template = tokens.CHATML.replace("{% endif %}", "{% else %}{{ eos_token }}{% endif %}")
    assert template != tokens.CHATML
    encoder = LanguageEncoder(tokens.byte_level(tmp_path, template), Language(max_length=200), roles=["messages"])
    chat = [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 2, "abcd", strict=True)]
    (record,) = encoder.encode(pa.table({"messages": [json.dumps(chat)]}))
    text = "".join(encoder.tokenizer.convert_ids_to_tokens(record["input_ids"]))
    learned = record["input_ids"].roll(-1)[record[ANSWERED]]
    shown = "".join(encoder.tokenizer.convert_ids_to_tokens(learned))
    assert text.endswith("d<|im_end|>Ċ</s>")
    assert shown == "b<|im_end|>Ċd<|im_end|>Ċ</s>"


def test_the_first_turn_of_an_assistant_is_learned_without_its_header(tmp_path):
    encoder = LanguageEncoder(tokens.byte_level(tmp_path, tokens.CHATML), Language(), roles=["messages"])
    chat = [{"role": "assistant", "content": "hello"}, {"role": "user", "content": "a"}]
    (record,) = encoder.encode(table_of(chat))
    assert encoder.tokenizer.decode(record["input_ids"][1:][record[ANSWERED][:-1]]) == "hello<|im_end|>\n"


@pytest.mark.parametrize(
    ("eos", "template", "end", "endless"),
    [
        ("</s>", tokens.CHATML, "<|im_end|>", False),
        ("<|im_end|>", tokens.CHATML, "<|im_end|>", False),
        ("</s>", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", None, True),
    ],
)
def test_the_token_that_ends_a_turn_ends_a_text(eos, template, end, endless, tmp_path):
    template += "{% if add_generation_prompt %}{{ '' }}{% endif %}"
    folder = tokens.byte_level(tmp_path, template, eos=eos)
    encoder = LanguageEncoder(folder, Language(), roles=["messages"])
    names = {eos} if end is None else {eos, end}
    assert encoder.ends() == set(encoder.tokenizer.convert_tokens_to_ids(sorted(names)))
    assert encoder.endless == endless
    assert LanguageEncoder(folder, Language()).ends() == {encoder.end}


def test_earlier_reasoning_that_a_template_leaves_out_is_neither_learned_nor_an_error(tmp_path):
    """As Qwen3 does: the last turn alone has a place for it."""
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if loop.last and m['role'] == 'assistant' %}"
        "{{ '<think></think>' }}{% endif %}{{ m['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
    )
    encoder = LanguageEncoder(tokens.byte_level(tmp_path, template), Language(), roles=["messages"])
    (record,) = encoder.encode(table_of(turns("a", "b", "c", "d")))
    told = encoder.tokenizer.decode(record["input_ids"][1:][record[ANSWERED][:-1]])
    assert told == "b<|im_end|>\n<think></think>d<|im_end|>\n"


def test_a_template_that_asks_in_another_way_than_it_writes_is_refused(tmp_path):
    template = tokens.CHATML.replace("'<|im_start|>assistant\n'", "'<|im_start|>assistant\n<think>'")
    folder = tokens.byte_level(tmp_path, template)
    with pytest.raises(RecipeError, match="asks for a turn of the assistant in another way"):
        LanguageEncoder(folder, Language(), roles=["messages"])


def test_a_text_begins_with_all_that_the_tokenizer_puts_before_it_and_once(tmp_path):
    """As GLM's two tokens, which its chat template writes, too."""
    prefix = ("[gMASK]", "<s>")
    folder = tokens.byte_level(tmp_path, "{{ '[gMASK]<s>' }}" + tokens.CHATML, prefix=prefix)
    encoder = LanguageEncoder(folder, Language(), roles=["messages"])
    begin = encoder.tokenizer.convert_tokens_to_ids(list(prefix))
    (prompt,), (record,) = (
        encoder.prompts(pa.table({"prompt": ["a"]})),
        encoder.encode(pa.table({"prompt": ["a"], "completion": ["b"]})),
    )
    assert prompt[:2] == record["input_ids"].tolist()[:2] == begin == encoder.begun("a")[:2]
    chat = encoder.rendered(turns("a"), ask=True)
    assert encoder.begun(chat) == encoder.prompts(table_of(turns("a")))[0]
    assert encoder.begun(chat).count(begin[0]) == 1


def test_a_template_writes_the_recipe_s_date_whatever_the_day(tmp_path):
    folder = tokens.byte_level(tmp_path, tokens.DATED + tokens.CHATML)
    with pytest.raises(RecipeError, match=r"language\.date"):
        LanguageEncoder(folder, Language(), roles=["messages"])
    encoder = LanguageEncoder(folder, Language(date="2026-01-05"), roles=["messages"])
    (record,) = encoder.encode(table_of(turns("a", "b")))
    written = encoder.tokenizer.decode(record["input_ids"])
    assert written.startswith("Today is Monday, 05 Jan 2026\n<|im_start|>user\na")


def test_a_fixed_date_writes_what_the_day_wrote():
    day, moment = datetime.date.today(), datetime.datetime.now()
    directives = "%a %A %b %B %d %-d %e %m %y %Y %j %U %W %u %w %G %V %F %D %% %%Y"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(BPE()))
    template = "\n  {% if strftime_now is defined %}{{ strftime_now('" + directives + "') }}{% endif %}\n x"
    tokenizer.chat_template = template
    own = tokenizer.apply_chat_template(turns("a"), tokenize=False)
    tokenizer.chat_template = dated(template, day)
    assert tokenizer.apply_chat_template(turns("a"), tokenize=False) == own
    assert own.strip().startswith(moment.strftime("%a"))
