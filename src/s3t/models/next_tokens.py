"""The next tokens' logits, step after step, of texts that a language model writes; and a trial of how it can.

Models with states besides keys and values (Mamba, RWKV, hybrids) differ in what they allow: texts of unlike length side
by side, a cache at all. A trial tells, with public tokens.
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from transformers import DynamicCache

Way: TypeAlias = Literal["batched", "single", "uncached"]
"""Several texts are written side by side; or each by itself; or each with whole passes, without a cache."""
WAYS: tuple[Way, ...] = ("batched", "single", "uncached")
"""The fastest first."""

ROUNDING = 1e-2
"""Largest change by rounding, as a share of the change that a mistake would cause."""


def next_logits(
    model: nn.Module, prompts: Sequence[Sequence[int]], *, members: int, pad: int, cached: bool
) -> Generator[Tensor, Mapping[int, int]]:
    """Yields logits of each text's next token, members x texts rows; is sent the next token of each text that goes on,
    by its place among those before.
    """
    asked = inspect.signature(model.forward).parameters
    device = next(model.parameters()).device
    ids, mask = (tensor.repeat(members, 1) for tensor in _left_padded(prompts, pad, device))
    passed: dict[str, Any] = {"use_cache": cached} | ({"logits_to_keep": 1} if "logits_to_keep" in asked else {})
    config: Any = model.config
    cache = DynamicCache(config=config)
    states_alone = "cache_params" in asked  # Mamba's name for it
    if cached:
        passed["cache_params" if states_alone else "past_key_values"] = cache
    seen: Tensor | None = mask
    while True:
        if "position_ids" in asked:
            passed["position_ids"] = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        going = yield model(input_ids=ids, attention_mask=seen, **passed).logits[:, -1]
        count = len(mask) // members
        if len(going) < count:
            rows = torch.tensor([member * count + place for member in range(members) for place in going], device=device)
            cache.reorder_cache(rows)  # unlike batch_select_indices, it knows states of layers without attention
            mask, ids = mask[rows], ids[rows]
        following = torch.tensor(list(going.values()), device=device).repeat(members)[:, None]
        ids = following if cached else torch.cat([ids, following], dim=1)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        seen = None if cached and states_alone else mask  # for earlier tokens' sake, which such a model has no more


def _left_padded(prompts: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token ids and mask, N x longest: texts end side by side, so that the next tokens are all in the last column."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[pad] * (longest - len(one)) + list(one) for one in prompts], device=device)
    mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts], device=device)
    return ids, mask


def writes_as_whole_passes(model: nn.Module, tokens: Sequence[int], way: Way) -> bool:
    """True if a bare model in float32 writes in this way what it does in whole passes of each text by itself.

    Of two texts the longer one ends first.

    Args:
        tokens: of a public text, at least ten.
    """
    pair = [list(tokens[:6]), list(tokens[4:6])]
    errors, spreads = [], []
    for texts in [pair] if way == "batched" else [[text] for text in pair]:
        steps = next_logits(model, texts, members=1, pad=0, cached=way != "uncached")
        found = next(steps)
        for step, token in enumerate(tokens):
            whole = torch.cat([_whole(model, text) for text in texts])
            errors.append((found - whole).abs().max())
            spreads.append((whole - whole.mean(dim=1, keepdim=True)).abs().max())
            going = range(step == 3 and len(texts) > 1, len(texts))
            texts = [[*texts[place], token] for place in going]
            found = steps.send(dict.fromkeys(going, token))
    return bool(max(errors) <= ROUNDING * max(spreads))


def _whole(model: nn.Module, text: Sequence[int]) -> Tensor:
    ids = torch.tensor([text])
    logits: Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    return logits[:, -1]
