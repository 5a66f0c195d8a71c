"""Answers and metrics from the members' logits, as the task defines them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.recipe import Recipe
from s3t.recipe.parts import DEFAULT_THRESHOLD
from s3t.tasks import Target
from s3t.tasks.aggregate import Scores, shares


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Settings with which a run's ensemble answers.

    Its methods take the logits of every member, N x C, with the member's shard and its part within the shard (None:
    equal parts), and perhaps the number of answers to each input, which become one tuple (None: one answer each).
    """

    target: Target
    labels: tuple[str, ...]
    """The label set in the head's order; empty where the target has none."""
    aggregation: str
    threshold: float = DEFAULT_THRESHOLD
    sisa_weight: float = 0.5
    """Weight of a shard's model, where prototypes answer beside it."""
    with_probabilities: bool = True
    """Answers tell them."""

    @classmethod
    def of(cls, recipe: Recipe, labels: tuple[str, ...]) -> Answers:
        return cls(
            target=recipe.task.target,
            labels=labels,
            aggregation=recipe.prediction.aggregation,
            threshold=recipe.prediction.threshold,
            sisa_weight=recipe.prediction.sisa_weight,
            with_probabilities=recipe.prediction.answers == "probabilities",
        )

    def answer(
        self,
        logits_MNC: Scores,
        shards: Sequence[int],
        parts: Sequence[float] | None = None,
        counts: Sequence[int] | None = None,
    ) -> tuple[tuple[Any, ...], Scores | None]:
        """The answer to every input, and its probabilities, N x C; N is words where each is answered.

        None in the place of probabilities where the target has none, and where answers do not tell them.
        """
        answers, probabilities = self.target.answers(
            logits_MNC, _weights(shards, parts), self.labels, aggregation=self.aggregation, threshold=self.threshold
        )
        each = iter(answers)
        grouped = answers if counts is None else [tuple(itertools.islice(each, count)) for count in counts]
        return tuple(grouped), probabilities if self.with_probabilities else None

    def score(self, logits_NC: Scores, expected: Sequence[Any], counts: Sequence[int] | None = None) -> float:
        """Score of one member; higher is better."""
        return self.target.score(self.metrics([logits_NC], [0], expected, counts=counts))

    def metrics(
        self,
        logits: Sequence[Scores],
        shards: Sequence[int],
        expected: Sequence[Any],
        parts: Sequence[float] | None = None,
        counts: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """The target's measures."""
        return self.target.metrics(self.answer(np.stack(logits), shards, parts, counts)[0], expected, self.labels)


def _weights(shards: Sequence[int], parts: Sequence[float] | None) -> NDArray[np.float64] | None:
    """None where every shard has one member: then the plain mean is taken."""
    return None if len(set(shards)) == len(shards) else shares(shards, parts)
