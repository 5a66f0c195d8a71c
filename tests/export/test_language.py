"""Exports of language models: equal logits with PEFT and merged, before a deletion and after it."""

import json

import numpy as np
import pytest
import torch
import transformers

from s3t.models.encoders import encoder_for
from s3t.records.ingest import ingest_inputs, ingest_prompts
from s3t.tasks.task import ANSWERED
from testing.language import chat_table, language_recipe, make_language_model, prompt_table
from tests.export.loaded import SMALL, described, load
from tests.run.worlds import trained_run

CHATS = {"columns": {"messages": "messages", "prompt": None, "completion": None}}


def assert_equal_likelihoods(folder, run):
    """The log-probabilities of the export's own logits are those of its member."""
    said, table = described(folder), prompt_table(seed=5)
    encoder = encoder_for(run.path.parent / "model", run.recipe)
    model, found = load(folder), []
    for record in encoder.encode(ingest_inputs(table, run.recipe).features):
        with torch.no_grad():
            logits = model(input_ids=record["input_ids"][None]).logits[0, :-1].log_softmax(-1)
        each = logits.gather(1, record["input_ids"][1:, None])[record[ANSWERED][:-1]]
        found.append(each[:, 0].numpy())
    expected = run.score(table, prefixes=[(said["shard"], tuple(said["prefix"]))]).logits[0, :, 0]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.integration
@pytest.mark.parametrize("kind", ["llama", "llama-tied", "gpt2", "gemma3", "qwen3", "gpt-neox"])
def test_a_decoder_is_exported_with_equal_logits(kind, tmp_path):
    model = make_language_model(tmp_path / "model", kind=kind)
    with trained_run(tmp_path / "run", language_recipe(model, **SMALL), prompt_table()) as run:
        for deleted in ([], ["r3"]):
            if deleted:
                run.delete(records=deleted)
                run.repair()
            made = [run.export(tmp_path / "out", merge=merge).exports[0] for merge in (False, True)]
            assert all(each.new for each in made)
            for each in made:
                assert_equal_likelihoods(each.path, run)


def test_the_tokenizer_of_a_merged_export_writes_a_chat_as_the_run_does(tmp_path):
    model = make_language_model(tmp_path / "model")
    template = (model / "chat_template.jinja").read_text()
    template = "{{ strftime_now('%Y') }} " + template.replace("</s>", "w39")
    (model / "chat_template.jinja").write_text(template)
    config = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps(config | {"extra_special_tokens": ["w39"]}))
    recipe = language_recipe(model, **CHATS, **SMALL)
    recipe["language"]["date"] = "2001-02-03"
    with trained_run(tmp_path / "run", recipe, chat_table()) as run:
        (export,) = run.export(tmp_path / "out", merge=True).exports
        notices = " ".join((adapter := run.export(tmp_path / "adapters")).notices)
        beside = (adapter.exports[0].path / "chat_template.jinja").read_text()
        encoder = encoder_for(model, run.recipe)
        chat = [{"role": "user", "content": "w1 w2"}]
        (prompt,) = encoder.prompts(ingest_prompts([chat], run.recipe).features)
    tokenizer = transformers.AutoTokenizer.from_pretrained(export.path)
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == encoder.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.startswith("2001 ")
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == prompt
    settings = transformers.GenerationConfig.from_pretrained(export.path)
    assert settings.eos_token_id == sorted(tokenizer.convert_tokens_to_ids(["</s>", "w39"]))
    assert tokenizer.apply_chat_template(chat, chat_template=beside, tokenize=False, add_generation_prompt=True) == text
    assert "ends with token" in notices
    assert "2001-02-03" in notices


def test_all_chat_templates_of_the_base_are_in_a_merged_export_and_leave_with_it(tmp_path):
    model = make_language_model(tmp_path / "model")
    (model / "additional_chat_templates").mkdir()
    (model / "additional_chat_templates" / "tools.jinja").write_text("{{ messages[0]['content'] }} w3")
    with trained_run(tmp_path / "run", language_recipe(model, **SMALL), prompt_table()) as run:
        (export,) = run.export(tmp_path / "out", merge=True).exports
        tokenizer = transformers.AutoTokenizer.from_pretrained(export.path)
        chat = [{"role": "user", "content": "w1 w2"}]
        assert tokenizer.apply_chat_template(chat, chat_template="tools", tokenize=False) == "w1 w2 w3"
        run.delete(records=["r3"])
    assert not export.path.exists()
