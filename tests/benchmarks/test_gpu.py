"""What of the GPU's benchmark needs no GPU: true sizes and operations without values, and tiny models trained."""

import dataclasses
import sys
from pathlib import Path

import pytest

from benchmarks import gpu, variant
from tests.models.kinds import LLAMA, SMALL

TINY = {
    "vit": SMALL | {"image_size": 32, "patch_size": 16},
    "roberta": SMALL | {"max_position_embeddings": 26, "pad_token_id": 0, "vocab_size": 50},
    "llama": LLAMA | {"pad_token_id": 0, "vocab_size": 50},
}

each_kind = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.integration] * (name != "vit")) for name in gpu.KINDS]
)


def tiny_kind(name):
    tokens = 5 if name == "vit" else 20
    return dataclasses.replace(gpu.KINDS[name], config=TINY[name], tokens=tokens, block=1, records=10, batch=4)


MILLIONS = {"vit": 86, "roberta": 355, "llama": 1236}


@each_kind
def test_a_model_has_its_true_size_and_operations_of_the_trunk_are_those_of_its_layers_forward(name):
    kind = gpu.KINDS[name]
    assert gpu.parameters(kind) / 1e6 == pytest.approx(MILLIONS[name], rel=0.005)
    config, tokens = kind.configuration(), kind.tokens
    width, inner = config.hidden_size, config.intermediate_size
    groups = getattr(config, "num_key_value_heads", config.num_attention_heads) / config.num_attention_heads
    attention = width * width * (2 + 2 * groups)
    feedforward = width * inner * (3 if name == "llama" else 2)
    layer = 2 * tokens * (attention + feedforward) + 2 * 2 * tokens * tokens * width
    saved = kind.flops(cached=False) - kind.flops(cached=True)
    assert saved == (config.num_hidden_layers - kind.block) * layer
    # What is left: the block forward, and backward but for the gradient of its frozen inputs; LoRA; patches and head.
    assert 1.5 < kind.flops(cached=True) / (kind.block * layer) < 2.2


@each_kind
def test_a_tiny_model_of_each_kind_is_measured_by_both_ways(name, tmp_path, monkeypatch):
    monkeypatch.setattr(variant, "PEAK_SIDES", (64,))
    folders = iter(range(10))

    def in_this_process(job):
        folder = tmp_path / str(next(folders))
        folder.mkdir()
        return variant.measured_here(job, folder)

    found = gpu.measured(tiny_kind(name), measure=in_this_process)
    for one in gpu.VARIANTS:
        assert found[one]["records_a_second"] > 0
        assert found[one]["tokens_a_second"] == found[one]["records_a_second"] * tiny_kind(name).tokens
        assert found[one]["share_of_peak"] > 0
    assert found["times_as_fast"] == found["s3t"]["records_a_second"] / found["competent"]["records_a_second"]


def test_without_a_gpu_the_benchmark_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu", "--results", str(tmp_path)])
    with pytest.raises(SystemExit, match="2"):
        gpu.main()
    assert "no GPU" in capsys.readouterr().err
    assert list(Path(tmp_path).iterdir()) == []
