"""The numeric environment: what decides bits besides the inputs, and how it is held still.

Replay holds on one environment. It is noted in every manifest, so an audit elsewhere can say why bytes differ.

accelerate is not used here: its Accelerator is a process-wide singleton whose precision outlives the stage that chose
it, and a stage must be a function of its inputs.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.metadata import version
from typing import Any

import torch

from s3t.models.assembly import Abilities
from s3t.models.base import ALONE
from s3t.recipe import TrainingSettings

# Those whose version can change a tensor: arithmetic, adapters, tokenisation, decoding.
_PACKAGES = ("torch", "transformers", "peft", "tokenizers", "numpy", "pillow")

FILL_NEW_MEMORY = False
"""True: torch fills new memory with NaN, so that reading it unwritten, with another record's data in it, gives NaN. It
takes a tenth of a step. Tests train with it and compare bytes."""

WIDTH_A_THREAD = 192
"""Width of a model that is worth a thread of a training. Measured at widths 384 on 2 threads and 768 on 4, in
both precisions: a step takes at most a tenth more CPU seconds than on one thread. At 128, two can take half as much
again (`python -m benchmarks.together --part widths`). A whole training at width 384 took 1.15 times the CPU seconds."""


def resolve_device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def resolved(training: TrainingSettings, abilities: Abilities, *, cores: int) -> TrainingSettings:
    """Training settings with every `auto` that decides bits resolved for this machine.

    Precision: bfloat16 where the processor multiplies it natively, else float32. Threads: as many as the model's width
    is worth, at most those that torch takes and the cores; never by the clock, so that runs of one machine agree.
    Attention: torch's where the model has it, but not in bfloat16 on a CPU, where its backward pass is slow. The
    device stays `auto`: it is noted in the manifests, and a run may move to another.
    """
    device = resolve_device(training.device)
    precision, threads, attention = training.precision, training.threads, training.attention
    if precision == "auto":
        precision = "bfloat16" if _has_bfloat16(device) else "float32"
    if threads == "auto":
        threads = min(torch.get_num_threads(), cores, max(1, abilities.width // WIDTH_A_THREAD))
    if attention == "auto":
        slow = device.type == "cpu" and precision == "bfloat16"
        attention = "sdpa" if abilities.sdpa and not slow else "eager"
    return training.model_copy(
        update={
            "precision": precision,
            "threads": threads,
            "attention": attention,
            "shortcuts": abilities.shortcuts if training.shortcuts == "auto" else training.shortcuts,
            "trunk_cache": abilities.trunk if training.trunk_cache == "auto" else training.trunk_cache,
        }
    )


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def slow_precision(device: torch.device, training: TrainingSettings) -> str | None:
    """A sentence where the device computes the resolved precision without instructions for it; else None."""
    if training.precision != "bfloat16" or _has_bfloat16(device):
        return None
    return (
        "this machine's processor has no instructions for bfloat16, so training and answers are slow here; make the "
        "run with training.precision: float32, or use a processor that has them"
    )


@cache
def versions(*, quantized: bool = False) -> dict[str, str]:
    """Versions of the libraries, which a process imports once: reading their metadata takes a tenth of a tiny stage."""
    return {name: version(name) for name in (*_PACKAGES, *(["bitsandbytes"] if quantized else []))}


def environment(device: torch.device, *, quantized: bool = False) -> dict[str, str]:
    if device.type == "cuda":
        processor = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    else:
        processor = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return versions(quantized=quantized) | {"device": device.type, "processor": processor}


@contextmanager
def exact_numerics(device: torch.device, training: TrainingSettings) -> Iterator[None]:
    """Set deterministic kernels, the resolved precision and number of threads, and restore torch's settings at exit.

    These are settings of the process, so one stage, prediction or loading of a model at a time is within; other threads
    wait.
    """
    if training.precision == "auto" or training.threads == "auto":
        raise ValueError("precision and threads must be resolved before anything is computed")
    deterministic: Any = torch.utils.deterministic
    with ALONE, ExitStack() as restored:
        warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
        restored.callback(
            torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled(), warn_only=warn_only
        )
        restored.callback(setattr, deterministic, "fill_uninitialized_memory", deterministic.fill_uninitialized_memory)
        restored.callback(torch.set_num_threads, torch.get_num_threads())
        restored.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        restored.callback(torch.set_default_dtype, torch.get_default_dtype())
        if device.type == "cuda":
            # cuBLAS asks for it, and reads it once; a value that the user chose stays.
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        deterministic.fill_uninitialized_memory = FILL_NEW_MEMORY
        torch.set_num_threads(training.threads)
        torch.set_float32_matmul_precision("highest")  # no TF32, no bfloat16 behind our back
        torch.set_default_dtype(torch.float32)
        with torch.autocast(device.type, torch.bfloat16, enabled=training.precision == "bfloat16", cache_enabled=False):
            yield
