"""From the members' logits to answers, and to metrics: what the task makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.recipe import Recipe
from s3t.tasks import Target
from s3t.tasks.aggregate import Scores, shares


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How a run's ensemble answers.

    Attributes:
        target: says what logits mean.
        labels: the label set in the head's order; empty where the target has none.
        aggregation: logits, probabilities or vote.
        sisa_weight: of a shard's model, where prototypes answer beside it.
        with_probabilities: whether answers tell them.
    """

    target: Target
    labels: tuple[str, ...]
    aggregation: str
    sisa_weight: float = 0.5
    with_probabilities: bool = True

    @classmethod
    def of(cls, recipe: Recipe, labels: tuple[str, ...]) -> Answers:
        """As a recipe declares."""
        return cls(
            target=recipe.task.target,
            labels=labels,
            aggregation=recipe.prediction.aggregation,
            sisa_weight=recipe.prediction.sisa_weight,
            with_probabilities=recipe.prediction.answers == "probabilities",
        )

    def answer(
        self,
        logits_MNC: Scores,  # noqa: N803
        shards: Sequence[int],
        parts: Sequence[float] | None = None,
    ) -> tuple[tuple[Any, ...], Scores | None]:
        """The answer to every input, and its probabilities, N x C.

        None in their place where the target has none, and where answers do not tell them.

        Args:
            logits_MNC: of the members.
            shards: of every member, its shard.
            parts: of every member, what it weighs beside the others of its shard; None: they weigh alike.
        """
        answers, probabilities = self.target.answers(
            logits_MNC, _weights(shards, parts), self.labels, aggregation=self.aggregation
        )
        return tuple(answers), probabilities if self.with_probabilities else None

    def score(self, logits_NC: Scores, expected: Sequence[Any]) -> float:  # noqa: N803
        """How good one member is, the more the better."""
        return self.target.score(self.metrics([logits_NC], [0], expected))

    def metrics(
        self,
        logits: Sequence[Scores],
        shards: Sequence[int],
        expected: Sequence[Any],
        parts: Sequence[float] | None = None,
    ) -> dict[str, Any]:
        """The target's measures.

        Args:
            logits: of every member, N x C.
            shards: of every member, its shard.
            expected: the right answers, N.
            parts: as for `answer`.
        """
        return self.target.metrics(self.answer(np.stack(logits), shards, parts)[0], expected, self.labels)

    def report(
        self,
        logits: Sequence[Scores],
        shards: Sequence[int],
        expected: Sequence[Any],
        parts: Sequence[float] | None = None,
    ) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]:
        """What the target says of each label. Arguments as `metrics`."""
        return self.target.report(self.answer(np.stack(logits), shards, parts)[0], expected, self.labels)


def _weights(shards: Sequence[int], parts: Sequence[float] | None) -> NDArray[np.float64] | None:
    """None where every shard has one member: then the plain mean is taken."""
    return None if len(set(shards)) == len(shards) else shares(shards, parts)
