"""The benchmark of language models runs, and the docs tell what it wrote."""

import json
import random

import pytest
import torch
import transformers

from benchmarks import language
from benchmarks.language_opponents import OPPONENTS, ROW, packed, padded
from testing.language import make_language_model
from tests.benchmarks.test_docs import PAGE, row

WORDS = {
    "plain": "drawn at random",
    "grouped": "of similar length",
    "bfloat16": "of similar length, base in bfloat16",
    "packed": "drawn at random, base in bfloat16, packed",
}
"""An opponent's batches in the docs."""


def test_the_docs_tell_what_was_measured():
    found = json.loads(language.RESULTS.read_text())
    rates = found["training"]["tokens_a_second"]
    assert f"tokens a second (s3t: {rates['s3t']:,.0f})" in PAGE
    assert {"plain", "grouped"} <= found["training"]["against"].keys() <= WORDS.keys()
    for name, against in found["training"]["against"].items():
        assert row(WORDS[name], [f"{against['times_as_fast']:.2f}", f"{rates[name]:,.0f}"]) in PAGE
    for precision in ("float32", "bfloat16"):
        each = found["writing"][precision]
        times = [f"{each['milliseconds'][name]:.1f}" for name in ("one", "peft", "five")]
        assert f"- {precision}: {'; '.join(times)}" in PAGE


def test_packed_records_have_the_loss_and_the_gradients_of_padded_ones(tmp_path):
    """So transformers masks them from each other; and a row has no more tokens than it may have."""
    model = transformers.LlamaForCausalLM.from_pretrained(
        make_language_model(tmp_path / "model", max_position_embeddings=ROW), attn_implementation="eager"
    )
    draws = random.Random(0)
    examples = []
    for length in (100, 7, 90, 60, 1, 130, 41):
        ids = [draws.randrange(4, 30) for _ in range(length)]
        examples.append({"input_ids": ids, "labels": [-100, *ids[1:]]})
    found = []
    for collate in (padded, packed):
        model.zero_grad()
        loss = model(**collate(examples), use_cache=False).loss  # as Trainer says
        loss.backward()
        found.append((loss.item(), model.model.layers[0].self_attn.q_proj.weight.grad.clone()))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
    rows = packed(examples)["input_ids"]
    assert len(rows) == 2
    assert rows.shape[1] <= ROW


@pytest.mark.integration
def test_every_part_runs_with_a_tiny_model(real_data, tmp_path, monkeypatch):
    monkeypatch.setenv("S3T_DATA", str(real_data))
    monkeypatch.setattr("sys.argv", ["language", "--quick", "--json", "--results", str(tmp_path / "found.json")])
    language.main()
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found) == {"training", "writing", "streams"}
    assert all(share > 0 for share in found["streams"]["of_one_request"].values())
    assert found["training"]["against"].keys() == OPPONENTS.keys() == WORDS.keys()
    assert all(len(each["by_stage"]) == language.SLICES for each in found["training"]["against"].values())
