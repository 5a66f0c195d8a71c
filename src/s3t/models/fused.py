"""LoRA as training computes it when `training.fused_lora` is on: the sum y + s (x A^T) B^T in one product.

PEFT's own forward pass computes the update, scales it and adds it: three tensors of the module's whole output. Under
autocast it also converts the module's input to float32, which the next product converts back. The product here differs
in the last bits alone. PEFT's extension point for other forward passes is used, so nothing of PEFT is replaced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from peft.tuners.lora import Linear
from peft.tuners.lora.layer import LoraVariant
from torch import Tensor, nn


class _OneProduct(LoraVariant):  # type: ignore[misc, unused-ignore]
    @staticmethod
    def forward(module: Any, active_adapter: str, x: Tensor, result: Tensor, **_: Any) -> Tensor:
        inner = module.lora_A[active_adapter](module.lora_dropout[active_adapter](x))
        up = module.lora_B[active_adapter].weight
        rows, updates = result.reshape(-1, result.shape[-1]), inner.reshape(-1, inner.shape[-1])
        summed = torch.addmm(rows, updates, up.t(), alpha=module.scaling[active_adapter])
        return summed.view(result.shape)


def fuse(modules: Iterable[nn.Module]) -> None:
    """Have every adapter of these modules computed in one product, where it is plain LoRA of a linear module.

    Others (IA3, DoRA, LoRA of a convolution) stay as PEFT computes them.
    """
    for module in modules:
        if not isinstance(module, Linear):
            continue
        plain = [name for name, up in module.lora_B.items() if name not in module.lora_variant and up.bias is None]
        for name in plain:
            module.lora_variant[name] = _OneProduct
        if plain:
            module.cast_input_dtype_enabled = False
