"""The numeric environment is resolved, held and put back."""

from dataclasses import replace

import pytest
import torch

from s3t.models.assembly import Abilities
from s3t.recipe import TrainingSettings
from s3t.training import numerics
from s3t.training.numerics import environment, exact_numerics, resolve_device, resolved

ABLE = Abilities(sdpa=True, trunk=True, shortcuts=["packing"], writing="batched", width=8 * numerics.WIDTH_A_THREAD)


def test_auto_precision_is_bfloat16_only_where_the_processor_has_it():
    capabilities = torch.cpu.get_capabilities()
    native = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    assert resolved(TrainingSettings(device="cpu"), ABLE, cores=8).precision == ("bfloat16" if native else "float32")
    assert resolved(TrainingSettings(precision="float32"), ABLE, cores=8).precision == "float32"


@pytest.mark.parametrize(
    ("width", "torchs", "cores", "threads"),
    [(8, 16, 16, 1), (384, 16, 16, 2), (1024, 16, 16, 5), (1024, 3, 16, 3), (1024, 16, 2, 2)],
)
def test_auto_threads_are_worth_the_models_width_and_no_more_than_there_are(width, torchs, cores, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: torchs)
    assert resolved(TrainingSettings(), replace(ABLE, width=width), cores=cores).threads == threads
    assert resolved(TrainingSettings(threads=3), replace(ABLE, width=width), cores=cores).threads == 3


@pytest.mark.parametrize(
    ("precision", "sdpa", "attention"),
    [("bfloat16", True, "eager"), ("float32", True, "sdpa"), ("float32", False, "eager")],
)
def test_auto_attention_is_torchs_where_the_model_has_it_and_it_is_fast(precision, sdpa, attention):
    training = TrainingSettings(device="cpu", precision=precision)
    assert resolved(training, replace(ABLE, sdpa=sdpa), cores=8).attention == attention
    asked = training.model_copy(update={"attention": "model"})
    assert resolved(asked, ABLE, cores=8).attention == "model"


def test_the_trunk_is_kept_and_shortcuts_are_taken_where_the_model_allows_them():
    for able in (ABLE, replace(ABLE, trunk=False, shortcuts=[])):
        found = resolved(TrainingSettings(), able, cores=8)
        assert (found.trunk_cache, found.shortcuts) == (able.trunk, able.shortcuts)
    off = resolved(TrainingSettings(trunk_cache=False, shortcuts=[]), ABLE, cores=8)
    assert (off.trunk_cache, off.shortcuts) == (False, [])


def test_nothing_is_computed_with_an_auto_left():
    with pytest.raises(ValueError, match="resolved"), exact_numerics(resolve_device("cpu"), TrainingSettings()):
        pass


def test_the_environment_names_what_decides_bits():
    named = environment(torch.device("cpu"))
    assert named.keys() >= {"torch", "transformers", "peft", "tokenizers", "pillow", "device", "processor"}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_and_determinism_hold_within_and_not_after(precision):
    device = resolve_device("cpu")
    before = torch.get_num_threads()
    with exact_numerics(device, TrainingSettings(precision=precision, threads=before + 1)):
        assert torch.get_num_threads() == before + 1
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_autocast_enabled("cpu") == (precision == "bfloat16")
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_num_threads() == before


def test_what_torch_was_told_elsewhere_does_not_hold_within_and_does_again_after():
    torch.set_float32_matmul_precision("medium")
    torch.set_default_dtype(torch.float64)
    try:
        with exact_numerics(resolve_device("cpu"), TrainingSettings(precision="float32", threads=1)):
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.get_default_dtype() == torch.float32
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("fill", [True, False])
def test_filling_new_memory_is_set_and_put_back(fill, monkeypatch):
    monkeypatch.setattr(numerics, "FILL_NEW_MEMORY", fill)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", not fill)
    with exact_numerics(resolve_device("cpu"), TrainingSettings(precision="float32", threads=1)):
        assert torch.utils.deterministic.fill_uninitialized_memory is fill
        assert not fill or torch.empty(1_000).isnan().all()
    assert torch.utils.deterministic.fill_uninitialized_memory is not fill
