"""Answers of causal language models: of one, of the mean of several, or of groups of them that are combined.

Plain transformers models, so that every system is asked in the same way. Shapes: N texts, T tokens, U tokens that are
asked for, V words of the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache

from experiments.tofu.measures import Told
from s3t.models.language import LanguageEncoder
from s3t.recipe import Language

Group = Sequence[Any]
"""Models whose mean of probabilities answers, as an ensemble of shards does."""
Combine = Callable[[Sequence[Tensor]], Tensor]
"""Log-probabilities of the groups, each ... x V, to scores ... x V."""


class Tokens(NamedTuple):
    """A prompt and its answer."""

    prompt: list[int]
    answer: list[int]
    """With the end of text."""


class Reader:
    """Texts as a run's own tokens, and back.

    Args:
        base: folder of the base model.
        length: tokens of a record at most, as in the recipe.
    """

    def __init__(self, base: Path, length: int) -> None:
        self._encoder = LanguageEncoder(base, Language(max_length=length))
        self.end = self._encoder.end

    def tokens(self, prompts: Sequence[str], answers: Sequence[str]) -> list[Tokens]:
        """Prompts with their answers, cut as a run cuts records."""
        rows = pa.table({"prompt": list(prompts), "completion": list(answers)})
        begun = self._encoder.prompts(rows)
        whole = [record["input_ids"].tolist() for record in self._encoder.encode(rows)]
        return [Tokens(before, ids[len(before) :]) for before, ids in zip(begun, whole, strict=True)]

    def text(self, tokens: Sequence[int]) -> str:
        """A text, without special tokens."""
        return str(self._encoder.tokenizer.decode(tokens, skip_special_tokens=True))


def first(groups: Sequence[Tensor]) -> Tensor:
    """The first group alone."""
    return groups[0]


def mean_of(logits: Sequence[Tensor]) -> Tensor:
    """Log of the mean of the models' probabilities.

    Args:
        logits: of each model, ... x V.
    """
    each = torch.stack([own.float().log_softmax(-1) for own in logits])
    return each.logsumexp(0) - math.log(len(each))


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread, as training has: the same bits whatever the process did before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def told(
    groups: Sequence[Group], texts: Sequence[Tokens], *, combine: Combine = first, batch_size: int = 16
) -> list[Told]:
    """What groups of models say of the tokens of each answer.

    Args:
        groups: at least one.
        texts: prompts and answers.
        combine: scores of tokens from the groups' log-probabilities; normalised anew here.
        batch_size: texts in a pass.
    """
    order = sorted(range(len(texts)), key=lambda number: sum(map(len, texts[number])))  # stable
    found: dict[int, Told] = {}
    with one_thread(), torch.inference_mode():
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            batch = [texts[number] for number in numbers]
            scores = combine([mean_of([_of_answers(model, batch) for model in group]) for group in groups])
            logs, right = scores.log_softmax(-1), torch.tensor([token for one in batch for token in one.answer])
            values, good = logs.gather(1, right[:, None])[:, 0], logs.argmax(1) == right
            counts = [len(one.answer) for one in batch]
            for number, own, likeliest in zip(
                numbers, torch.split(values, counts), torch.split(good, counts), strict=True
            ):
                found[number] = Told(own.tolist(), likeliest.tolist())
    return [found[number] for number in range(len(texts))]


def written(
    groups: Sequence[Group],
    prompts: Sequence[Sequence[int]],
    *,
    most: int,
    end: int,
    combine: Combine = first,
    batch_size: int = 64,
) -> list[list[int]]:
    """Greedy continuations of prompts, without their end of text.

    Args:
        groups: at least one.
        prompts: in tokens; none empty.
        most: tokens of a continuation at most.
        end: the end of text.
        combine: scores of the next token from the groups' log-probabilities.
        batch_size: texts that are written together.
    """
    order = sorted(range(len(prompts)), key=lambda number: len(prompts[number]))  # stable
    found: dict[int, list[int]] = {}
    with one_thread(), torch.inference_mode():
        for start in range(0, len(order), batch_size):
            numbers = order[start : start + batch_size]
            texts = _written_together(groups, [prompts[number] for number in numbers], most, end, combine)
            found |= zip(numbers, texts, strict=True)
    return [found[number] for number in range(len(prompts))]


def _of_answers(model: Any, batch: Sequence[Tokens]) -> Tensor:
    """Logits for each token of the answers, U x V."""
    ids = [torch.tensor([*one.prompt, *one.answer][:-1]) for one in batch]
    mask = pad_sequence([torch.ones_like(own) for own in ids], batch_first=True)
    logits = model(input_ids=pad_sequence(ids, batch_first=True), attention_mask=mask, use_cache=False).logits
    return torch.cat(
        [
            own[len(one.prompt) - 1 : len(one.prompt) - 1 + len(one.answer)]
            for own, one in zip(logits, batch, strict=True)
        ]
    )


def _written_together(
    groups: Sequence[Group], prompts: Sequence[Sequence[int]], most: int, end: int, combine: Combine
) -> list[list[int]]:
    """Texts of one batch: padded on the left, each model with keys and values of the tokens before."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[end] * (longest - len(own)) + list(own) for own in prompts])
    mask = torch.tensor([[0] * (longest - len(own)) + [1] * len(own) for own in prompts])
    caches = [[DynamicCache() for _ in group] for group in groups]
    texts: list[list[int]] = [[] for _ in prompts]
    open_ = torch.ones(len(prompts), dtype=torch.bool)
    for _ in range(most):
        places = (mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        scores = combine(
            [
                mean_of(
                    [
                        model(
                            input_ids=ids,
                            attention_mask=mask,
                            position_ids=places,
                            past_key_values=cache,
                            use_cache=True,
                            logits_to_keep=1,
                        ).logits[:, -1]
                        for model, cache in zip(group, own, strict=True)
                    ]
                )
                for group, own in zip(groups, caches, strict=True)
            ]
        )
        chosen = scores.argmax(1)
        open_ &= chosen != end
        for text, token, goes_on in zip(texts, chosen.tolist(), open_.tolist(), strict=True):
            if goes_on:
                text.append(token)
        if not open_.any():
            break
        ids, mask = chosen[:, None], torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
    return texts
