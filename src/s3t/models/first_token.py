"""The last layer for the first token alone, where the head reads no other.

Attention needs every token's keys and values. What follows it in the last layer computes each token by itself, so all
but the first are work that nothing reads: about three quarters of that layer, forward and backward. Logits differ by
rounding alone. Two forms of layers are known; other models compute all tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from torch import Tensor, nn

from s3t.models.packing import Packing


def cut_modules(layer: nn.Module) -> Sequence[nn.Module]:
    """Modules of a layer at whose inputs tokens can be cut; none of a form that is not known.

    BERT and its kin add the residual in a module after the attention, which gets both tensors. ViT and its kin add it
    in the layer: there a sum with all tokens is right at the first one, and is cut at the next module's input.
    """
    attention = getattr(layer, "attention", None)
    output = getattr(attention, "output", None)
    if isinstance(output, nn.Module) and list(inspect.signature(output.forward).parameters) == _RESIDUAL:
        return (output,)
    projection, norm = getattr(attention, "o_proj", None), getattr(layer, "layernorm_after", None)
    if isinstance(projection, nn.Module) and isinstance(norm, nn.Module):
        return (projection, norm)
    return ()


_RESIDUAL = ["hidden_states", "input_tensor"]


def packable(modules: Sequence[nn.Module]) -> bool:
    """True if the layer may get several texts in a row: it then adds no tensor that has all tokens."""
    return len(modules) == 1


@contextmanager
def first_tokens(modules: Sequence[nn.Module], packing: Packing | None) -> Iterator[None]:
    """While within, modules get the first token of each text or image alone, batch x 1 x width.

    Args:
        packing: the texts' places in rows that they share; None: each has its own.
    """

    def first(states: Tensor) -> Tensor:
        if packing is None:
            return states[:, :1]
        return states.flatten(0, 1).index_select(0, packing.found[:, 0])[:, None]

    def enter(_module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(map(first, args))

    with ExitStack() as stack:
        for module in modules:
            stack.callback(module.register_forward_pre_hook(enter).remove)
        yield
