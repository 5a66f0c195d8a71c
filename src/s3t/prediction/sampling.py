"""Choice of the next token from its probabilities.

Shapes: N texts, V words of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor

from s3t.errors import InputError

LEAST = -9999.0
"""Logarithm of a probability of 0, as OpenAI has it."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of writing."""

    max_new_tokens: int = 128
    """Tokens of a text at most, its end included."""
    temperature: float = 0.0
    """0: the likeliest token each time; else probabilities are raised to the power 1/temperature."""
    top_p: float = 1.0
    """Above temperature 0: draw among the likeliest tokens that have this probability together."""
    stop: tuple[str, ...] = ()
    """Texts at which a text ends; they are not a part of it."""
    seed: int = 0
    """Seed of the draws. Each prompt and choice has draws of its own, whatever is written beside it."""
    n: int = 1
    """Texts after each prompt."""
    logprobs: int | None = None
    """So many of the likeliest tokens are told beside each token, with their probabilities; None: nothing is."""

    def __post_init__(self) -> None:
        problems = []
        if self.max_new_tokens < 1:
            problems.append(f"max_new_tokens: {self.max_new_tokens}; give at least 1")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            problems.append(f"temperature: {self.temperature}; give 0 or more")
        if not 0 < self.top_p <= 1:
            problems.append(f"top_p: {self.top_p}; give more than 0, and at most 1")
        if isinstance(self.stop, str) or not all(isinstance(text, str) and text for text in self.stop):
            problems.append("stop: give texts, none of them empty, in a list")
        if not 0 <= self.seed < 2**63:
            problems.append(f"seed: {self.seed}; give 0 to 2^63-1")
        if self.n < 1:
            problems.append(f"n: {self.n}; give at least 1")
        if problems:
            raise InputError("generate", problems)

    def draws(self, prompt: int, choice: int) -> torch.Generator:
        """The generator of one of the texts after a prompt."""
        digest = sha256(f"{self.seed}/{prompt}/{choice}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)


def pick(probabilities_NV: Tensor, sampling: Sampling, draws: Sequence[torch.Generator]) -> list[int]:
    """The next token of each text, with the text's own generator on the CPU."""
    if sampling.temperature == 0:
        likeliest: list[int] = probabilities_NV.argmax(dim=1).tolist()
        return likeliest
    logs_NV = probabilities_NV.cpu().double().log()
    logs_NV -= logs_NV.amax(dim=1, keepdim=True)  # else all are infinite at the lowest temperatures
    tempered = (logs_NV / sampling.temperature).softmax(dim=1)
    if sampling.top_p < 1:
        tempered = _nucleus(tempered, sampling.top_p)
    return [int(torch.multinomial(row, 1, generator=draw).item()) for row, draw in zip(tempered, draws, strict=True)]


def logs_of(probabilities_NV: Tensor, tokens: Sequence[int], sampling: Sampling) -> list[list[tuple[int, float]]]:
    """Of each text the token that was picked, with the logarithm of its probability, and then the likeliest ones; empty
    where nobody asks."""
    if sampling.logprobs is None:
        return [[] for _ in tokens]
    logs_NV = probabilities_NV.log().clamp(min=LEAST)
    own_N = logs_NV.gather(1, torch.tensor(tokens, device=logs_NV.device)[:, None])[:, 0].tolist()
    logs, places = logs_NV.topk(min(sampling.logprobs, logs_NV.shape[1]))
    return [
        [own, *zip(numbers, each, strict=True)]
        for own, numbers, each in zip(zip(tokens, own_N, strict=True), places.tolist(), logs.tolist(), strict=True)
    ]


def _nucleus(probabilities_NV: Tensor, share: float) -> Tensor:
    """Zero but for the likeliest tokens, as many as it takes to reach a share (Holtzman et al. 2020)."""
    ordered, places = probabilities_NV.sort(dim=1, descending=True)
    before = ordered.cumsum(dim=1) - ordered
    ordered = torch.where(before < share, ordered, 0.0)
    return torch.zeros_like(probabilities_NV).scatter(1, places, ordered)
