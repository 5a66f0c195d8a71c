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
from tests.export.loaded import described, load
from tests.run.worlds import SMALL, trained_run

CHATS = {"columns": {"messages": "messages", "prompt": None, "completion": None}}
KINDS = ["llama", "llama-tied", "gpt2", "gemma3", "qwen3", "gpt-neox"]


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
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("merge", [False, True], ids=["adapter", "merged"])
def test_a_decoder_is_exported_with_equal_logits(kind, merge, tmp_path):
    model = make_language_model(tmp_path / "model", kind=kind)
    with trained_run(tmp_path / "run", language_recipe(model, **SMALL), prompt_table()) as run:
        (before,) = run.export(tmp_path / "out", merge=merge).exports
        assert_equal_likelihoods(before.path, run)
        run.delete(records=["r3"])
        (after,) = run.export(tmp_path / "out", merge=merge).exports
        assert before.name != after.name
        assert_equal_likelihoods(after.path, run)


@pytest.mark.integration
def test_a_merged_language_model_writes_what_the_run_writes(tmp_path):
    model = make_language_model(tmp_path / "model")
    with trained_run(tmp_path / "run", language_recipe(model, **SMALL), prompt_table()) as run:
        (export,) = run.export(tmp_path / "out", merge=True).exports
        (text,) = run.generate(["w1 w2"], max_new_tokens=6).texts
    loaded = load(export.path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(export.path)
    asked = tokenizer("w1 w2", return_tensors="pt")
    written = loaded.generate(**asked, max_new_tokens=6, do_sample=False)[0, asked["input_ids"].shape[1] :]
    assert tokenizer.decode(written, skip_special_tokens=True).split() == text.split()


@pytest.mark.integration
@pytest.mark.filterwarnings("ignore")  # the harness's, and those of what it imports
@pytest.mark.parametrize("kind", ["llama", "qwen2", "mistral", "olmo2", "falcon"])
def test_the_harness_scores_an_adapter_as_it_scores_the_run(kind, tmp_path):
    """By its own model of Hugging Face, on chats as the template writes them."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from s3t.harness import S3TModel

    model = make_language_model(tmp_path / "model", kind=kind, layers=2)
    size = {"partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 2}, "training": {"epochs": 1}}
    asked = [[{"role": "user", "content": row.prompt}] for row in prompt_table(4, seed=5).itertuples()]
    said = [row.completion for row in prompt_table(4, seed=5).itertuples()]
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    with trained_run(tmp_path / "run", language_recipe(model, **CHATS, **size), chat_table()) as run:
        found = []
        for deleted in ([], ["r3"]):
            if deleted:
                run.delete(records=deleted)
            (export,) = run.export(tmp_path / "out").exports
            ours = S3TModel(run)
            theirs = HFLM(pretrained=load(export.path), tokenizer=tokenizer, batch_size=4)
            texts = [lm.apply_chat_template(chat) for lm in (ours, theirs) for chat in asked]
            assert texts[: len(asked)] == texts[len(asked) :]
            requests = [
                Instance(request_type="loglikelihood", doc={}, arguments=pair, idx=0)
                for pair in zip(texts, said, strict=False)
            ]
            scores = [np.array([score for score, _ in lm.loglikelihood(requests)]) for lm in (ours, theirs)]
            np.testing.assert_allclose(*scores, atol=1e-5, rtol=1e-5)
            found.append(scores[0])
        assert np.abs(found[0] - found[1]).max() > 1e-3  # of another prefix, which the comparison would see


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
