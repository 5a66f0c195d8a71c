"""Texts written by an ensemble: each next token is chosen by the mean of the members' probabilities.

All members pass each token side by side, in one pass through the base, each with its own keys and values of the tokens
before. Shapes: M members, N texts, V words of the vocabulary.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from s3t.errors import InputError, TooLongError
from s3t.events import Progress, WorkStep, silent
from s3t.models.language import Decoding, LanguageEncoder, Way
from s3t.models.passes import HEAD_TOKENS, tiled
from s3t.prediction.ensemble import Ensemble
from s3t.tasks.task import ANSWERED
from s3t.training.examples import cut

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
        texts = not isinstance(self.stop, str) and all(isinstance(text, str) and text for text in self.stop)
        right = {
            f"max_new_tokens: {self.max_new_tokens}; give at least 1": self.max_new_tokens >= 1,
            f"temperature: {self.temperature}; give 0 or more": 0 <= self.temperature < math.inf,
            f"top_p: {self.top_p}; give more than 0, and at most 1": 0 < self.top_p <= 1,
            "stop: give texts, none of them empty, in a list": texts,
            f"seed: {self.seed}; give 0 to 2^63-1": 0 <= self.seed < 2**63,
            f"n: {self.n}; give at least 1": self.n >= 1,
        }
        if problems := [problem for problem, holds in right.items() if not holds]:
            raise InputError("generate", problems)

    def draws(self, prompt: int, choice: int) -> torch.Generator:
        digest = sha256(f"{self.seed}/{prompt}/{choice}".encode()).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest[:8]) >> 1)


def pick(probabilities_V: Tensor, sampling: Sampling, draws: torch.Generator) -> int:
    """The next token of a text, with the text's own generator on the CPU."""
    if sampling.temperature == 0:
        return int(probabilities_V.argmax())
    logs_V = probabilities_V.cpu().double().log()
    logs_V -= logs_V.amax()  # else all are infinite at the lowest temperatures
    tempered_V = (logs_V / sampling.temperature).softmax(dim=0)
    if sampling.top_p < 1:
        tempered_V = _nucleus(tempered_V, sampling.top_p)
    return int(torch.multinomial(tempered_V, 1, generator=draws).item())


def logs_of(probabilities_V: Tensor, token: int, sampling: Sampling) -> list[tuple[int, float]]:
    """A picked token with the logarithm of its probability, then the likeliest tokens with theirs."""
    if sampling.logprobs is None:
        return []
    logs_V = probabilities_V.log().clamp(min=LEAST)
    logs, places = logs_V.topk(min(sampling.logprobs, len(logs_V)))
    return [(token, float(logs_V[token])), *zip(places.tolist(), logs.tolist(), strict=True)]


def _nucleus(probabilities_V: Tensor, share: float) -> Tensor:
    """Zero but for the likeliest tokens, as many as it takes to reach a share (Holtzman et al. 2020)."""
    ordered, places = probabilities_V.sort(descending=True)
    before = ordered.cumsum(dim=0) - ordered
    ordered = torch.where(before < share, ordered, 0.0)
    return torch.zeros_like(probabilities_V).scatter(0, places, ordered)


Finish: TypeAlias = Literal["stop", "length"]
"""Why a text ended: at its end or a stop text; or at the greatest length."""


class Likely(NamedTuple):
    """A token that might stand at a place."""

    text: str
    bytes: bytes
    """In UTF-8; a token may be a part of a letter."""
    logprob: float


class WrittenToken(NamedTuple):
    """A token of a text."""

    offset: int
    """Letters of the text before it."""
    chosen: Likely
    likeliest: tuple[Likely, ...]
    """The likeliest tokens at its place, as many as were asked for."""


class Piece(NamedTuple):
    """Addition of one step to a text."""

    text: int
    """Number of the text, counted from 0."""
    added: str
    """New letters; empty while a letter of several tokens, or the beginning of a stop text, is incomplete."""
    finish: Finish | None
    """None: the text goes on."""
    tokens: tuple[WrittenToken, ...] = ()
    """The finished tokens of the text, if `Sampling.logprobs` asks for them."""


@dataclass(kw_only=True)
class Written:
    """A text that is being written."""

    tokenizer: Any
    ends: Collection[int]
    stop: Sequence[str]
    most: int
    """Tokens at most."""
    tokens: list[int] = field(default_factory=list)
    told: str = ""
    """Text returned so far."""
    _spelled: bytes = b""
    """Bytes of all tokens so far, if the tokens are returned."""
    _held: list[WrittenToken] = field(default_factory=list)
    """Tokens of which nothing has been returned."""
    _bytes: int = 0
    """Tokens at the end that are one byte each. A decoder with byte fallback reads a run of them as a whole."""

    def add(
        self, token: int, logs: Sequence[tuple[int, float]] = ()
    ) -> tuple[str, Finish | None, tuple[WrittenToken, ...]]:
        """Take a token in, perhaps with the logarithms of `logs_of`; the letters that are new and certain, why the text
        ends here, if it does, and whole tokens.

        All tokens are decoded at each step, since a decoder may change what it has made of earlier ones.
        """
        if logs:
            chosen, *likeliest = (Likely(*self._named(each), log) for each, log in logs)
            self._held.append(WrittenToken(len(self._spelled.decode(errors="ignore")), chosen, tuple(likeliest)))
            self._spelled += chosen.bytes
        self.tokens.append(token)
        finish: Finish | None = "stop" if token in self.ends else None
        shown = self.tokens[:-1] if finish else self.tokens
        text = self._decoded(shown)
        places = [place for stop in self.stop if (place := text.find(stop)) >= 0]
        if places:
            text, finish = text[: min(places)], "stop"
        elif finish is None and len(self.tokens) >= self.most:
            finish = "length"
        certain = text if finish else self._certain(text)
        added = certain[len(self.told) :]
        self.told += added
        whole = [each for each in self._held if each.offset < len(self.told)]
        self._held = self._held[len(whole) :]
        return added, finish, tuple(whole)

    def _named(self, token: int) -> tuple[str, bytes]:
        """Letters and bytes that a token adds after the last one."""
        name, special = self.tokenizer.convert_ids_to_tokens(token) or "", self.tokenizer.all_special_ids
        if _BYTE.fullmatch(name):
            content = bytes.fromhex(name[3:5])
        elif token not in special and _byte_level(self.tokenizer):
            content = bytes(_bytes_of_letters()[letter] for letter in name)
        else:  # what a token is written as can depend on whether there is one before it
            last = [each for each in self.tokens if each not in special][-1:]
            before, both = self._decoded(last), self._decoded([*last, token])
            text = both[len(before) :] if both.startswith(before) else self._decoded([token])
            return text, text.encode()
        return content.decode(errors="replace"), content

    def _decoded(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True)
        return text

    def _certain(self, text: str) -> str:
        """The text without what a later token may change: a half character, a run of bytes, blanks that are cleaned up,
        or the beginning of a stop text.
        """
        last = self.tokens[-1]
        if _BYTE.fullmatch(self.tokenizer.convert_ids_to_tokens(last) or ""):
            self._bytes += 1
        elif self._bytes:  # a special token is left out, and so ends no run
            self._bytes = self._bytes + 1 if last in self.tokenizer.all_special_ids else 0
        if self._bytes:
            text = self._decoded(self.tokens[: -self._bytes])
        text = text.rstrip("\ufffd")
        if _cleans_up(self.tokenizer):
            text = text[: max(0, text.rfind(" "))]
        beginnings = (length for stop in self.stop for length in range(1, len(stop)) if text.endswith(stop[:length]))
        return text[: len(text) - max(beginnings, default=0)]


_BYTE = re.compile("<0x[0-9A-F]{2}>")
"""A token of one byte, in vocabularies with byte fallback."""


def _byte_level(tokenizer: Any) -> bool:
    """True if the letters of a token's name stand for bytes, as in GPT-2."""
    return tokenizer.is_fast and "ByteLevel" in repr(tokenizer.backend_tokenizer.decoder)


@cache
def _bytes_of_letters() -> dict[str, int]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {letter: byte for byte, letter in bytes_to_unicode().items()}


def _cleans_up(tokenizer: Any) -> bool:
    """True if decoding takes blanks away, before points for instance."""
    decoder = type(tokenizer.backend_tokenizer.decoder).__name__ if tokenizer.is_fast else ""
    return tokenizer.clean_up_tokenization_spaces is True or decoder in ("WordPiece", "CTC")


@dataclass(kw_only=True)
class _Text:
    """A text of a batch."""

    number: int
    prompt: Sequence[int]
    sampling: Sampling
    draws: torch.Generator
    written: Written
    ended: bool = False


class TextBatch:
    """Texts that the same members write side by side, one token of each in a step (continuous batching).

    At most `size` of them are under way; the others wait. Where the model can, a waiting text joins as soon as another
    has ended, else when all have. The members' shards have the same weight.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        chains: Sequence[Sequence[Any]],
        *,
        shards: Sequence[int],
        encoder: LanguageEncoder,
        size: int,
        way: Way,
    ) -> None:
        self._ensemble, self._chains, self._shards, self._encoder = ensemble, chains, shards, encoder
        self._model: Any = ensemble.model.base.model
        self._ends = encoder.ends(getattr(getattr(self._model, "generation_config", None), "eos_token_id", None))
        self._size = size if way == "batched" else 1
        cached = way != "uncached"
        self._decoding = Decoding(self._model, members=len(chains), pad=encoder.pad_token_id, cached=cached)
        self._waiting: deque[_Text] = deque()
        self._under_way: list[_Text] = []
        self._count = 0
        self._weights = torch.empty(0)

    @property
    def joins(self) -> bool:
        """True if a text need not wait until all others have ended."""
        return self._size > 1 and self._decoding.joins

    @property
    def open(self) -> set[int]:
        """Numbers of the texts that have not ended."""
        return {text.number for text in (*self._under_way, *self._waiting) if not text.ended}

    def add(self, prompts: Sequence[Sequence[int]], sampling: Sampling) -> range:
        """Ask for texts after prompts; their numbers: of several choices, those of a prompt one after the other."""
        positions = self._ensemble.model.base.positions
        problems = [
            f"prompt {number} has {len(prompt):,} tokens; give 1 to {positions - 1:,}, for the model has {positions:,}"
            for number, prompt in enumerate(prompts)
            if not 0 < len(prompt) < positions
        ]
        if problems:
            raise TooLongError("generate", problems)
        first = self._count
        for number, prompt in enumerate(prompts):
            most = min(sampling.max_new_tokens, positions - len(prompt))
            for choice in range(sampling.n):
                draws, tokenizer = sampling.draws(number, choice), self._encoder.tokenizer
                written = Written(tokenizer=tokenizer, ends=self._ends, stop=sampling.stop, most=most)
                self._waiting.append(
                    _Text(number=self._count, prompt=prompt, sampling=sampling, draws=draws, written=written)
                )
                self._count += 1
        return range(first, self._count)

    def leave(self, numbers: Collection[int]) -> None:
        """End texts that nobody wants any more."""
        for text in (*self._under_way, *self._waiting):
            text.ended = text.ended or text.number in numbers

    @contextmanager
    def at_model(self) -> Iterator[None]:
        """While within, the calling thread has the model, with the members on it, and may call `step`."""
        with self._ensemble.side_by_side(self._chains, self._shards) as self._weights:
            yield

    def step(self) -> list[Piece]:
        """Write one more token of each text under way; what that adds to each. Empty once all texts have ended."""
        going = {place: text for place, text in enumerate(self._under_way) if not text.ended}
        waiting = [text for text in self._waiting if not text.ended]
        room = self._size - len(going) if self._decoding.joins or not going else 0
        self._under_way, self._waiting = [*going.values(), *waiting[:room]], deque(waiting[room:])
        if not self._under_way:
            return []
        newest = {place: text.written.tokens[-1] for place, text in going.items()}
        logits_MNV = self._decoding.step(newest, [text.prompt for text in waiting[:room]]).float()
        probabilities_NV = torch.einsum("m,mnv->nv", self._weights, logits_MNV.softmax(dim=2))
        return [self._piece(text, own_V) for text, own_V in zip(self._under_way, probabilities_NV, strict=True)]

    def _piece(self, text: _Text, probabilities_V: Tensor) -> Piece:
        token = pick(probabilities_V, text.sampling, text.draws)
        added, finish, tokens = text.written.add(token, logs_of(probabilities_V, token, text.sampling))
        text.ended = finish is not None
        return Piece(text.number, added, finish, tokens)

    def likelihoods(self, continuations: Sequence[Continuation], progress: Progress = silent) -> list[Likelihood]:
        """The likelihood of each continuation, some at a time, the shortest first."""
        order = sorted(range(len(continuations)), key=lambda number: sum(map(len, continuations[number])))  # stable
        found: dict[int, Likelihood] = {}
        with self.at_model():
            for some in cut(order, max(1, self._ensemble.rows // len(self._chains))):
                found |= zip(some, self._likelihoods([continuations[number] for number in some]), strict=True)
                progress(WorkStep(count=len(some)))
        return [found[number] for number in range(len(continuations))]

    def _likelihoods(self, continuations: Sequence[Continuation]) -> list[Likelihood]:
        passes, weights_M, pad = self._ensemble.model.passes, self._weights, self._encoder.pad_token_id
        # All tokens but the last, after which nothing is asked: a text may be one longer than the model.
        ids = [torch.tensor([*one.before, *one.tokens][:-1]) for one in continuations]
        answered = [torch.tensor([False] * (len(one.before) - 1) + [True] * len(one.tokens)) for one in continuations]
        masks = [torch.ones_like(one) for one in ids]
        device, members = weights_M.device, len(weights_M)
        given = (("input_ids", ids, pad), ("attention_mask", masks, 0), (ANSWERED, answered, False))
        batch = {
            name: pad_sequence(values, batch_first=True, padding_value=value).to(device)
            for name, values, value in given
        }
        right_U = torch.tensor([token for one in continuations for token in one.tokens], device=device)
        reached_MUD = passes.reached(tiled(batch, members)).view(members, len(right_U), -1)
        found: list[Tensor] = []
        likeliest: list[Tensor] = []
        for part in torch.split(torch.arange(len(right_U), device=device), max(1, HEAD_TOKENS // members)):
            logits_MUV = passes.over_vocabulary(reached_MUD[:, part].flatten(0, 1)).float().view(members, len(part), -1)
            probabilities_UV = torch.einsum("m,muv->uv", weights_M, logits_MUV.softmax(dim=2))
            found.append(probabilities_UV.gather(1, right_U[part][:, None])[:, 0].double().log())
            likeliest.append(probabilities_UV.argmax(dim=1) == right_U[part])
        counts = [len(one.tokens) for one in continuations]
        each = zip(torch.split(torch.cat(found), counts), torch.split(torch.cat(likeliest), counts), strict=True)
        return [Likelihood(float(values.sum()), bool(greedy.all())) for values, greedy in each]


class Continuation(NamedTuple):
    """Tokens after others."""

    before: Sequence[int]
    """At least one."""
    tokens: Sequence[int]


class Likelihood(NamedTuple):
    """Likelihood of a continuation."""

    log_probability: float
    greedy: bool
    """True if each token was the likeliest."""
