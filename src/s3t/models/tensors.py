"""Tensors of a trained stage, in memory and as a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from s3t.errors import IntegrityError

BLOCK, HEAD = "block/", "head/"


@dataclass(frozen=True, kw_only=True)
class StageTensors:
    """A stage's block, and the head as it was after it. On the CPU."""

    block: Mapping[str, Tensor]
    """Adapter tensors by `module/parameter`, such as bert.encoder.layer.5.attention.self.query/lora_A.weight."""
    head: Mapping[str, Tensor]
    """Head tensors by full name."""


def serialize(tensors: StageTensors) -> bytes:
    """A stage's tensors as a safetensors file. The same tensors give the same bytes."""
    flat: Mapping[str, Tensor] = {
        **{BLOCK + name: tensor for name, tensor in tensors.block.items()},
        **{HEAD + name: tensor for name, tensor in tensors.head.items()},
    }
    return safetensors.torch.save(dict(flat))


def deserialize(content: bytes) -> StageTensors:
    """The tensors of a safetensors file that `serialize` wrote."""
    try:
        flat = safetensors.torch.load(content)
    except safetensors.SafetensorError as error:
        raise IntegrityError(f"an artifact is not a safetensors file: {error}; run `s3t audit`") from error
    return StageTensors(
        block={name.removeprefix(BLOCK): tensor for name, tensor in flat.items() if name.startswith(BLOCK)},
        head={name.removeprefix(HEAD): tensor for name, tensor in flat.items() if name.startswith(HEAD)},
    )


def check_fit(shapes: Mapping[str, torch.Size], tensors: Mapping[str, Tensor], *, what: str) -> None:
    """Check that an artifact's tensors have exactly the model's names and shapes."""
    wrong = sorted(set(shapes) ^ set(tensors)) or [
        name for name, shape in shapes.items() if shape != tensors[name].shape
    ]
    if wrong:
        raise IntegrityError(
            f"{what} of an artifact does not fit the model: {', '.join(wrong[:5])}; the base model or PEFT has "
            "changed since it was trained"
        )


def copy_exactly(parameters: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor], *, what: str) -> None:
    """Give parameters the values of an artifact."""
    check_fit({name: parameter.shape for name, parameter in parameters.items()}, tensors, what=what)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def copied(parameter: Tensor) -> Tensor:
    """A copy on the CPU."""
    return parameter.detach().to("cpu", copy=True).contiguous()
