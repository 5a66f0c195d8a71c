"""Exports of language models: equal logits with PEFT and merged, before a deletion and after it."""

import numpy as np
import pytest
import torch
import transformers

from s3t.models.encoders import encoder_for
from s3t.records.ingest import ingest_inputs
from s3t.tasks.task import ANSWERED
from testing.language import language_recipe, make_language_model, prompt_table
from tests.export.loaded import described, load
from tests.run.worlds import SMALL, trained_run

KINDS = ["llama", "llama-tied", "gpt2", "gemma3", "qwen3", "gpt-neox"]


def assert_equal_likelihoods(folder, run):
    """The log-probabilities of the export's own logits are those of its member."""
    said, table = described(folder), prompt_table(seed=5)
    encoder = encoder_for(run.path.parent / "model", run.recipe)
    model, found = load(folder, "AutoModelForCausalLM"), []
    for record in encoder.encode(ingest_inputs(table, run.recipe).features):
        with torch.no_grad():
            logits = model(input_ids=record["input_ids"][None]).logits[0, :-1].log_softmax(-1)
        each = logits.gather(1, record["input_ids"][1:, None])[record[ANSWERED][:-1]]
        found.append(each[:, 0].numpy())
    expected = run.score(table, prefixes=[(said["shard"], tuple(said["prefix"]))]).logits[0, :, 0]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-5, rtol=1e-5)


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


def test_a_merged_language_model_writes_what_the_run_writes(tmp_path):
    model = make_language_model(tmp_path / "model")
    with trained_run(tmp_path / "run", language_recipe(model, **SMALL), prompt_table()) as run:
        (export,) = run.export(tmp_path / "out", merge=True).exports
        (text,) = run.generate(["w1 w2"], max_new_tokens=6).texts
    loaded = load(export.path, "AutoModelForCausalLM")
    tokenizer = transformers.AutoTokenizer.from_pretrained(export.path)
    asked = tokenizer("w1 w2", return_tensors="pt")
    written = loaded.generate(**asked, max_new_tokens=6, do_sample=False)[0, asked["input_ids"].shape[1] :]
    assert tokenizer.decode(written, skip_special_tokens=True).split() == text.split()
