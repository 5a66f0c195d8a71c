"""The numeric environment is resolved, held and put back."""

import pytest
import torch

from s3t.recipe import Training
from s3t.training import environment, exact_numerics, resolve_device, resolved


def test_auto_precision_is_bfloat16_only_where_the_processor_has_it():
    capabilities = torch.cpu.get_capabilities()
    native = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16")
    assert resolved(Training(device="cpu")).precision == ("bfloat16" if native else "float32")
    assert resolved(Training(precision="float32")).precision == "float32"


def test_auto_threads_are_as_many_as_torch_takes():
    assert resolved(Training()).threads == torch.get_num_threads()
    assert resolved(Training(threads=3)).threads == 3


def test_nothing_is_computed_with_an_auto_left():
    with pytest.raises(ValueError, match="resolved"), exact_numerics(resolve_device("cpu"), Training()):
        pass


def test_the_environment_names_what_decides_bits():
    named = environment(torch.device("cpu"))
    assert named.keys() >= {"torch", "transformers", "peft", "tokenizers", "pillow", "device", "processor"}


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_and_determinism_hold_within_and_not_after(precision):
    device = resolve_device("cpu")
    before = torch.get_num_threads()
    with exact_numerics(device, Training(precision=precision, threads=before + 1)):
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
        with exact_numerics(resolve_device("cpu"), Training(precision="float32", threads=1)):
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.get_default_dtype() == torch.float32
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.set_default_dtype(torch.float32)
