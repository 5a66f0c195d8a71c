"""Language models: what is learned of a record, and every decoder against transformers and PEFT."""

import datetime
import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Gemma3Config, PreTrainedTokenizerFast

from s3t.errors import DataError, RecipeError
from s3t.models.assembly import assemble, check_assembly
from s3t.models.language import LanguageEncoder, dated
from s3t.models.passes import HEAD_TOKENS, Start, pack
from s3t.recipe import Language, recipe_from
from s3t.tasks.task import ANSWERED
from testing import tokens
from testing.language import DECODERS, VOCABULARY, language_recipe, make_language_model, prompt_table
from testing.plain import copy_with, random_chain
from tests.models.kinds import problems_of


def learned(encoder, **columns):
    """The tokens that are learned of a record."""
    (record,) = encoder.encode(pa.table({name: [value] for name, value in columns.items()}))
    return [VOCABULARY[number] for number in record["input_ids"][1:][record[ANSWERED][:-1]]]


def table_of(*chats):
    return pa.table({"messages": [json.dumps(chat) for chat in chats]})


def turns(*contents):
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(contents)]


@pytest.mark.parametrize(
    ("loss", "columns", "wanted"),
    [
        ("completion", {"prompt": "w1 w2", "completion": "w3"}, "w3 </s>"),
        ("all", {"prompt": "w1 w2", "completion": "w3"}, "w2 w3 </s>"),
        ("completion", {"text": "w1 w2 w3"}, "w2 w3 </s>"),
    ],
)
def test_of_a_prompt_and_its_completion_the_completion_and_the_end_are_learned(loss, columns, wanted, llama):
    """Or all tokens but the first, if asked for, and of a text."""
    assert learned(LanguageEncoder(llama, Language(loss=loss)), **columns) == wanted.split()


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
    (prompt,), (record,) = encoder.prompts(table_of(CHAT[:2])), encoder.encode(table_of(CHAT))
    assert record["input_ids"].tolist() == encoder.tokenizer.apply_chat_template(CHAT, tokenize=True)["input_ids"]
    assert record["input_ids"].tolist()[: len(prompt)] == prompt
    assert record[ANSWERED].tolist().index(True) == len(prompt) - 1


def test_longer_records_are_cut_and_counted_and_so_are_those_with_nothing_left_to_learn(llama):
    encoder = LanguageEncoder(llama, Language(max_length=3))
    rows = pa.table({"prompt": ["w1", "w1 w2", "w1 w2 w3 w4"], "completion": ["w5", "w5", "w5"]})
    assert encoder.cut(rows) == ([False, True, True], 1)
    assert encoder.answers(rows) == [2, 1, 0]
    assert [len(record["input_ids"]) for record in encoder.encode(rows)] == [3, 3, 3]
    assert [len(encoder.places(record)) for record in encoder.encode(rows)] == [2, 1, 0]


def test_a_chat_that_the_template_refuses_is_named_without_a_word_of_it(llama):
    """So is one of which a turn is written anew once another follows."""
    encoder = LanguageEncoder(llama, Language(), roles=["messages"])
    for template, told in (
        ("{{ raise_exception(messages[0]['content']) }}", "refuses a chat of 5 messages"),
        ("{{ messages | length }}{% for m in messages %} {{ m['content'] }}{% endfor %}", "once another follows"),
    ):
        encoder.tokenizer.chat_template = template
        with pytest.raises(DataError, match=told) as error:
            encoder.encode(table_of(CHAT))
        assert "w9" not in str(error.value)


ASKS = "'<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (tokens.CHATML + "{{ ['a', 'b'] | random }}", "draws at random"),
        (tokens.CHATML + "{{ [1, 2]|random() }}", "draws at random"),
        (tokens.CHATML + "{{ lipsum(1) }}", "draws at random"),
        (tokens.CHATML.replace(ASKS, f"{ASKS}<think>"), "asks for a turn of the assistant in another way"),
        (tokens.DATED + tokens.CHATML, r"language\.date"),
        ("", "no chat template"),
    ],
)
def test_a_template_that_chats_cannot_be_learned_from_is_refused(template, reason, tmp_path):
    folder = tokens.byte_level(tmp_path, template or None)
    with pytest.raises(RecipeError, match=reason):
        LanguageEncoder(folder, Language(), roles=["messages"])
    LanguageEncoder(folder, Language())  # prompts and completions need none
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"eos_token": None}))
    with pytest.raises(RecipeError, match="no end-of-text token"):
        LanguageEncoder(folder, Language())


def test_quantised_experts_and_records_longer_than_the_model_are_refused_together(tmp_path):
    folder = make_language_model(tmp_path / "experts", kind="mixtral")
    changes = {"language": {"max_length": 49}, "training": {"quantization": "4bit"}}
    told = problems_of(folder, language_recipe(folder, **changes))
    assert "most weights of MixtralForCausalLM are its experts'" in told
    assert "language.max_length: 49 exceeds the model's 48 positions" in told


def test_a_model_of_texts_and_images_is_refused_with_the_configuration_that_is_wanted(tmp_path):
    folder = make_language_model(tmp_path / "text", kind="gemma3")
    text = AutoConfig.from_pretrained(folder)
    both = Gemma3Config(text_config=text.to_dict(), vision_config={"hidden_size": 8, "num_attention_heads": 2})
    both.save_pretrained(folder)
    told = problems_of(folder, language_recipe(folder))
    assert "a gemma3 model (Gemma3Config) is a language model and a part for images" in told
    assert '"model_type": "gemma3_text"' in told


def loaded(folder, **changes):
    recipe = recipe_from(language_recipe(folder, **changes))
    model, encoder = assemble(folder, recipe, labels=1)
    table = prompt_table()
    rows = pa.table({name: table[name].tolist() for name in ("prompt", "completion")})
    return model, encoder, encoder.encode(rows)


UNLIKE = {"llama-tied", "qwen2", "gemma3", "gpt2", "phi", "falcon", "opt", "mixtral", "openai-gpt", "nanochat"}
"""Decoders that pad, count, norm, mask or see otherwise; the others are like one of them."""


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.integration] * (kind not in UNLIKE)) for kind in DECODERS]
)
def test_every_decoder_answers_as_with_peft_from_every_border_and_packed_if_it_packs(kind, tmp_path):
    """Blocks of PEFT on a copy, transformers' own forward pass, and log-probabilities taken from its whole logits; also
    of the bare model as transformers loads it, and of texts that are blind to each other in one row."""
    folder = make_language_model(tmp_path / kind, kind=kind)
    packs = "packing" in check_assembly(folder, recipe_from(language_recipe(folder))).shortcuts
    assert packs == (kind not in ("falcon", "opt", "openai-gpt"))
    model, encoder, records = loaded(folder)
    assert model.base.head == ()
    batch = encoder.collate(records[:5])
    given = {name: batch[name] for name in ("input_ids", "attention_mask")}
    chain = random_chain(model, 2, seed=3)
    with torch.no_grad():
        bare = AutoModelForCausalLM.from_pretrained(folder).eval()(**given).logits[batch[ANSWERED]]
        assert torch.allclose(model.passes.logits(batch), bare, atol=1e-5)
        whole = copy_with(model, chain)(**given).logits
        expected = whole[:, :-1].log_softmax(-1).gather(2, batch["input_ids"][:, 1:, None])[batch[ANSWERED][:, :-1]]
        trunk = model.passes.states(batch, [model.border(2)])[model.border(2)]
        with model.mounted(chain):
            at_once = model.passes.answers(batch)
            entered = model.passes.answers(batch, Start(model.border(2), trunk))
        if packs:
            alone = torch.cat([model.passes.logits(encoder.collate([record])) for record in records[:5]])
            packed = model.passes.logits(batch, packing=pack(batch["attention_mask"]))
            assert torch.allclose(packed, alone, atol=1e-5)
    assert torch.allclose(at_once, expected, atol=1e-5)
    assert torch.allclose(entered, expected, atol=1e-5)


def test_tied_embeddings_are_of_no_head_and_stay_tied_where_a_stage_trains_them(tmp_path):
    folder = make_language_model(tmp_path / "model", kind="llama-tied")
    model, _, _ = loaded(folder, method={"name": "sisa", "trainable": "all"}, sequences={"budget": 1})
    whole, chain = model.base.model, random_chain(model, 1, seed=0)
    before = whole.get_input_embeddings().weight.clone()
    with model.mounted(chain):
        tied = whole.get_input_embeddings().weight
        assert whole.get_output_embeddings().weight is tied
        assert any(torch.equal(tied, value) for value in chain[1].block.values() if value.shape == tied.shape)
        assert not torch.equal(tied, before)
    assert whole.get_output_embeddings().weight is whole.get_input_embeddings().weight
    assert torch.equal(whole.get_input_embeddings().weight, before)


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


@pytest.mark.parametrize(
    ("make", "template"), [(tokens.byte_level, tokens.CHATML), (tokens.byte_fallback, tokens.LLAMA2)]
)
def test_a_chat_has_the_tokens_of_transformers_and_every_prompt_is_its_beginning(make, template, tmp_path):
    folder = make(tmp_path, template)
    own, encoder = AutoTokenizer.from_pretrained(folder), LanguageEncoder(folder, Language(), roles=["messages"])
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


ENDING = tokens.CHATML.replace("{% endif %}", "{% else %}{{ eos_token }}{% endif %}")
THINKING = tokens.CHATML.replace(
    "m['content'] +", "('<think></think>' if loop.last and m['role'] == 'assistant' else '') + m['content'] +"
)


@pytest.mark.parametrize(
    ("template", "chat", "wanted"),
    [
        (ENDING, turns("a", "b", "c", "d"), "b<|im_end|>\nd<|im_end|>\n</s>"),
        (THINKING, turns("a", "b", "c", "d"), "b<|im_end|>\n<think></think>d<|im_end|>\n"),
        (tokens.CHATML, turns("", "hello", "a")[1:], "hello<|im_end|>\n"),
    ],
    ids=[
        "Phi-3 ends the text after the last turn",
        "Qwen3 leaves earlier reasoning out",
        "the first turn has a header",
    ],
)
def test_turns_are_learned_as_the_template_writes_them(template, chat, wanted, tmp_path):
    encoder = LanguageEncoder(tokens.byte_level(tmp_path, template), Language(max_length=200), roles=["messages"])
    (record,) = encoder.encode(table_of(chat))
    assert encoder.tokenizer.decode(record["input_ids"][1:][record[ANSWERED][:-1]]) == wanted


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


def test_a_text_begins_with_all_that_the_tokenizer_puts_before_it_and_once(tmp_path):
    """As GLM's two tokens, which its chat template writes, too."""
    prefix = ("[gMASK]", "<s>")
    folder = tokens.byte_level(tmp_path, "{{ '[gMASK]<s>' }}" + tokens.CHATML, prefix=prefix)
    encoder = LanguageEncoder(folder, Language(), roles=["messages"])
    begin = encoder.tokenizer.convert_tokens_to_ids(list(prefix))
    (prompt,) = encoder.prompts(pa.table({"prompt": ["a"]}))
    (record,) = encoder.encode(pa.table({"prompt": ["a"], "completion": ["b"]}))
    assert prompt[:2] == record["input_ids"].tolist()[:2] == begin == encoder.begun("a")[:2]
    chat = encoder.rendered(turns("a"), ask=True)
    assert encoder.begun(chat) == encoder.prompts(table_of(turns("a")))[0]
    assert encoder.begun(chat).count(begin[0]) == 1


def test_a_template_writes_the_recipe_s_date_whatever_the_day(tmp_path):
    folder = tokens.byte_level(tmp_path, tokens.DATED + tokens.CHATML)
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
