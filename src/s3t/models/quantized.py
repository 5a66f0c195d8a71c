"""Frozen linear modules with weights of 4 or 8 bits (Dettmers et al., arXiv 2305.14314 and 2208.07339).

bitsandbytes packs weights and unpacks them; the bytes are those that transformers makes with `BitsAndBytesConfig`. The
modules are ours, for three properties of bitsandbytes' own would change results or lose gradients here:

- its 8-bit module rounds inputs to 8 bits, too, but for columns with large values, which it looks for in all rows of a
  batch: an answer would depend on the inputs beside it;
- its 4-bit module packs its weight anew, in place, at the first pass without gradients on some processors, and passes
  no gradient from then on;
- its biases take the type of the first input, in place.

So each product unpacks the weight, in the run's precision, and rounds no input. Packed weights are parameters and their
scales buffers: digests of the base model cover both.

Shapes: I and O features that a module takes and gives; N their product.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

from s3t.extras import how_to_install

Quantization: TypeAlias = Literal["8bit", "4bit"]

_BLOCK, _NESTED_BLOCK = 64, 256
"""Weights that share a scale; scales that share a scale."""


def missing_package() -> str | None:
    """A sentence if bitsandbytes is not installed; else None."""
    _show_bitsandbytes()
    if importlib.util.find_spec("bitsandbytes") is not None:
        return None
    return f"needs the package bitsandbytes; install it with: {how_to_install('quantized')}; or set it to none"


def quantize_layers(layers: nn.Module, kind: Quantization, *, dtype: torch.dtype) -> None:
    """Replace every linear module of the transformer layers by a quantised one. Output layer and head stay."""
    for name, module in list(layers.named_modules()):
        if type(module) is nn.Linear:  # a class of its own may read the weight itself
            layers.set_submodule(name, QuantizedLinear(module, kind, dtype=dtype))


class QuantizedLinear(nn.Linear):
    """A linear module that never changes.

    8bit: integers, with a scale for each of the O rows. 4bit: NF4 in blocks of 64 weights, whose scales have 8 bits, in
    blocks of 256.
    """

    def __init__(self, linear: nn.Linear, kind: Quantization, *, dtype: torch.dtype) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        weight = linear.weight.detach()
        scales: dict[str, Tensor] = {}
        if kind == "8bit":
            packed, scales["scale"], _ = functional().int8_vectorwise_quant(weight.to(torch.float16))
        else:
            packed, state = functional().quantize_4bit(
                weight.contiguous(), blocksize=_BLOCK, compress_statistics=True, quant_type="nf4"
            )
            scales |= {"absmax": state.absmax, "offset": state.offset, "code": state.code}
            scales |= {"nested_absmax": state.state2.absmax, "nested_code": state.state2.code}
        for name, scale in scales.items():
            self.register_buffer(name, scale)
        self.weight = nn.Parameter(packed, requires_grad=False)
        if linear.bias is not None:
            self.bias = nn.Parameter(linear.bias.detach(), requires_grad=False)
        self.kind = kind
        self.compute_dtype = dtype
        self.eval()

    def unpacked(self) -> Tensor:
        """The weight, O x I, in the type of products."""
        own: Any = self
        if self.kind == "8bit":
            return self.weight.to(self.compute_dtype).mul_(own.scale[:, None] / 127)
        package = functional()
        nested = package.QuantState(
            absmax=own.nested_absmax, code=own.nested_code, blocksize=_NESTED_BLOCK, dtype=torch.float32
        )
        # One row: where a block of weights lies in two rows, bitsandbytes 0.50 on a CPU takes a wrong scale.
        state = package.QuantState(
            absmax=own.absmax,
            shape=torch.Size((self.in_features * self.out_features,)),
            code=own.code,
            blocksize=_BLOCK,
            quant_type="nf4",
            dtype=self.compute_dtype,
            offset=own.offset,
            state2=nested,
        )
        weight: Tensor = package.dequantize_4bit(self.weight, state)
        return weight.view(self.out_features, self.in_features)

    def forward(self, input: Tensor) -> Tensor:
        """The product, in the type of products."""
        product: Tensor = _Product.apply(input.to(self.compute_dtype), self)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """Input times unpacked weight. Keeps neither for the backward pass, which unpacks the weight again."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: QuantizedLinear) -> Tensor:
        ctx.module = module
        bias = None if module.bias is None else module.bias.to(module.compute_dtype)
        return nn.functional.linear(x, module.unpacked(), bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient @ ctx.module.unpacked(), None


def functional() -> Any:
    """The functions of bitsandbytes."""
    _show_bitsandbytes()
    import bitsandbytes.functional

    return bitsandbytes.functional


def _show_bitsandbytes() -> None:
    """The program hides it, see `program.set_up_process`."""
    if sys.modules.get("bitsandbytes", sys) is None:
        del sys.modules["bitsandbytes"]
