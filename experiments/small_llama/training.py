"""The pre-training: a plain loop in bfloat16, of which a stopped run goes on with the same bits.

A step is a function of the settings, its number and the state before it. So all that is kept is the state.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from experiments.small_llama.corpus import Tokens, chunks
from experiments.small_llama.settings import Config

FLOOR = 0.1
"""Of the peak learning rate, at the end."""
SAVED_EVERY = 300.0
"""Seconds. No more work than this is lost when a run is killed."""


class Progress(NamedTuple):
    """What is kept beside the tensors."""

    step: int
    """Steps done."""
    seconds: float
    """Spent on them, in all runs together, with evaluations."""
    curve: list[dict[str, float]]
    """Evaluations so far."""


class Training:
    """A model while it is trained.

    Args:
        config: the settings.
        records: Alpaca's documents.
        texts: other documents.
        end: end of text.
        padding: padding token.
    """

    def __init__(self, config: Config, records: list[Tokens], texts: list[Tokens], *, end: int, padding: int) -> None:
        self._config = config
        self._documents = records, texts
        self._end = end
        self._epoch: tuple[int, Tokens] | None = None
        with torch.random.fork_rng():
            torch.manual_seed(config.seed)
            self.model = LlamaForCausalLM(
                LlamaConfig(
                    **config.model.model_dump(),
                    vocab_size=config.vocabulary,
                    max_position_embeddings=config.length,
                    tie_word_embeddings=True,
                    bos_token_id=end,
                    eos_token_id=end,
                    pad_token_id=padding,
                    attn_implementation="sdpa",
                )
            )
        groups: list[dict[str, Any]] = [
            {"params": [own for own in self.model.parameters() if (own.ndim > 1) is matrix], "weight_decay": decay}
            for matrix, decay in ((True, config.weight_decay), (False, 0.0))
        ]
        self._optimiser = torch.optim.AdamW(groups, lr=config.learning_rate, betas=(0.9, 0.99), fused=True)
        self._ends = np.cumsum([self._steps_of(epoch) for epoch in range(config.epochs)])
        self.progress = Progress(0, 0.0, [])

    @property
    def steps(self) -> int:
        """Of all epochs."""
        return int(self._ends[-1])

    @property
    def tokens(self) -> int:
        """Passed in all steps."""
        return self.steps * self._config.batch_size * self._config.length

    def run(
        self, evaluate: Callable[[], dict[str, float]], *, until: float, save: Callable[[], None]
    ) -> Iterator[tuple[int, float]]:
        """Train from the state; yields the number of steps done, and the step's loss.

        Args:
            evaluate: gives what the curve shows.
            until: time of `time.monotonic` at which to stop.
            save: keeps the state.
        """
        every = math.ceil(self.steps / self._config.evaluations)
        saved = began = time.monotonic()
        step, before, curve = self.progress.step, self.progress.seconds, list(self.progress.curve)
        while step < self.steps and time.monotonic() < until:
            loss = self._step(step)
            step += 1
            if step % every == 0 or step == self.steps:
                curve.append({"step": step, **evaluate()})
            self.progress = Progress(step, before + time.monotonic() - began, curve)
            if time.monotonic() - saved > SAVED_EVERY:
                save()
                saved = time.monotonic()
            yield step, loss
        save()

    def save(self, path: Path, about: str) -> None:
        """Keep the state, whole or not at all.

        Args:
            path: of the file.
            about: what the state depends on.
        """
        part = path.with_suffix(".part")
        metadata = {"about": about, "progress": json.dumps(self.progress)}
        save_file({name: tensor.contiguous() for name, tensor in self._state().items()}, part, metadata=metadata)
        part.replace(path)

    def load(self, path: Path, about: str) -> bool:
        """Go on from a state; False if it depends on something else."""
        with safe_open(path, framework="pt") as kept:
            metadata = kept.metadata()
            if metadata["about"] != about:
                return False
            progress = Progress(*json.loads(metadata["progress"]))
            for own in self.model.parameters():  # the optimiser makes its state at its first step
                own.grad = torch.zeros_like(own)
            self._optimiser.step()
            self._optimiser.zero_grad()
            with torch.no_grad():
                for name, tensor in self._state().items():
                    tensor.copy_(kept.get_tensor(name))
        self.progress = progress
        return True

    def _state(self) -> dict[str, Tensor]:
        named = dict(self.model.named_parameters())
        found: dict[str, Tensor] = {f"model.{name}": own.detach() for name, own in named.items()}
        for name, own in named.items():
            found |= {f"optimiser.{what}.{name}": value for what, value in self._optimiser.state[own].items()}
        return found

    def _step(self, step: int) -> float:
        batch = torch.from_numpy(self._batch(step).astype(np.int64))
        for group in self._optimiser.param_groups:
            group["lr"] = rate(step, steps=self.steps, warmup=self._config.warmup) * self._config.learning_rate
        with torch.autocast("cpu", torch.bfloat16):
            logits = self.model(input_ids=batch[:, :-1], use_cache=False).logits
        loss = cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self._config.max_grad_norm)
        self._optimiser.step()
        self._optimiser.zero_grad()
        return loss.item()

    def _batch(self, step: int) -> Tokens:
        epoch = int(np.searchsorted(self._ends, step, side="right"))
        if self._epoch is None or self._epoch[0] != epoch:
            rng = np.random.default_rng([self._config.seed, epoch])
            found = chunks(self._read_in(epoch), end=self._end, length=self._config.length, rng=rng)
            self._epoch = epoch, found
        size = self._config.batch_size
        first = (step - (int(self._ends[epoch - 1]) if epoch else 0)) * size
        return self._epoch[1][first : first + size]

    def _steps_of(self, epoch: int) -> int:
        tokens = sum(len(text) for text in self._read_in(epoch))
        return tokens // self._config.length // self._config.batch_size

    def _read_in(self, epoch: int) -> list[Tokens]:
        records, texts = self._documents
        return [*records, *texts] if epoch < self._config.text_epochs else records


def rate(step: int, *, steps: int, warmup: int) -> float:
    """The learning rate of a step, as a share of its peak: a line up, then half a cosine down.

    >>> [round(rate(step, steps=10, warmup=2), 2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.55, 0.13]
    """
    if step < warmup:
        return (step + 1) / warmup
    through = (step - warmup) / max(1, steps - warmup)
    return FLOOR + (1 - FLOOR) * (1 + math.cos(math.pi * through)) / 2
