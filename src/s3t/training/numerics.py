"""The numeric environment: what decides bits besides the inputs, and how it is held still.

Replay holds on one environment. It is noted in every manifest, so an audit elsewhere can say why bytes differ.

accelerate is not used here: its Accelerator is a process-wide singleton whose precision outlives the stage that chose
it, and a stage must be a function of its inputs.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version

import torch

# Those whose version can change a tensor: arithmetic, adapters, tokenisation, decoding.
_PACKAGES = ("torch", "transformers", "peft", "tokenizers", "numpy", "pillow")

Environment = dict[str, str]


def resolve_device(device: str) -> torch.device:
    """The device that `auto` means here."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def resolve_precision(precision: str, device: torch.device) -> str:
    """The precision that `auto` means here: bfloat16 where the processor multiplies it natively, else float32."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        capabilities = torch.cpu.get_capabilities()
        native = bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
    return "bfloat16" if native else "float32"


def environment(device: torch.device) -> Environment:
    """What of this machine and its libraries can change a stage's bits."""
    versions = {name: version(name) for name in _PACKAGES}
    if device.type == "cuda":
        processor = f"{torch.cuda.get_device_name(device)}, CUDA {torch.version.cuda}"
    else:
        processor = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    return versions | {
        "device": device.type,
        "processor": processor,
        "threads": str(torch.get_num_threads()),
    }


@contextmanager
def exact_numerics(device: torch.device, precision: str) -> Iterator[None]:
    """Deterministic kernels, and matrix products in the given precision; everything is put back afterwards."""
    deterministic = torch.are_deterministic_algorithms_enabled()
    if device.type == "cuda":
        # cuBLAS asks for it, and reads it once; a value that the user chose stays.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16", cache_enabled=False):
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic)
