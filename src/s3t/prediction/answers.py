"""From the members' logits to labels or numbers, and to metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.prediction.aggregate import Scores, aggregate, chosen, mean, shares
from s3t.prediction.metrics import class_report, classification_metrics, regression_metrics
from s3t.recipe import Prediction


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How a run's ensemble answers.

    Attributes:
        labels: the label set in the head's order; empty for a regression, which always answers with the mean.
        aggregation: logits, probabilities or vote.
        sisa_weight: of a shard's model, where prototypes answer beside it.
        with_probabilities: whether answers tell them.
    """

    labels: tuple[str, ...]
    aggregation: str
    sisa_weight: float = 0.5
    with_probabilities: bool = True

    @classmethod
    def of(cls, labels: tuple[str, ...], settings: Prediction) -> Answers:
        """As a recipe declares."""
        return cls(
            labels=labels,
            aggregation=settings.aggregation,
            sisa_weight=settings.sisa_weight,
            with_probabilities=settings.answers == "probabilities",
        )

    def answer(
        self,
        logits_MNC: Scores,  # noqa: N803
        shards: Sequence[int],
        parts: Sequence[float] | None = None,
    ) -> tuple[tuple[str | float, ...], Scores | None]:
        """The label or number of every input, and its probabilities, N x C.

        None in their place for a regression, and where answers do not tell them.

        Args:
            logits_MNC: of the members.
            shards: of every member, its shard.
            parts: of every member, what it weighs beside the others of its shard; None: they weigh alike.
        """
        weights = _weights(shards, parts)
        if not self.labels:
            return tuple(mean(logits_MNC, weights)[:, 0].tolist()), None
        probabilities = aggregate(logits_MNC, self.aggregation, weights_M=weights)
        labels = chosen(probabilities, logits_MNC, weights_M=weights)
        return tuple(self.labels[index] for index in labels), probabilities if self.with_probabilities else None

    def score(self, logits_NC: Scores, expected: Sequence[Any]) -> float:  # noqa: N803
        """How good one member is, the more the better: its accuracy; of a regression, its error below zero."""
        found = self.metrics([logits_NC], [0], expected)
        return float(found["accuracy"]) if self.labels else -float(found["rmse"])

    def metrics(
        self,
        logits: Sequence[Scores],
        shards: Sequence[int],
        expected: Sequence[Any],
        parts: Sequence[float] | None = None,
    ) -> dict[str, Any]:
        """Accuracy, F1 and Matthews correlation, or Pearson correlation and root mean squared error.

        Args:
            logits: of every member, N x C.
            shards: of every member, its shard.
            expected: the right answers, N.
            parts: as for `answer`.
        """
        if not self.labels:
            numbers = np.asarray(expected, dtype=np.float64)
            return dict(regression_metrics(mean(np.stack(logits), _weights(shards, parts))[:, 0], numbers))
        predicted, right = self._indices(logits, shards, expected, parts)
        return dict(classification_metrics(predicted, right, labels=len(self.labels)))

    def report(
        self,
        logits: Sequence[Scores],
        shards: Sequence[int],
        expected: Sequence[Any],
        parts: Sequence[float] | None = None,
    ) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]:
        """What `class_report` says of a classification's answers; nothing of a regression. Arguments as `metrics`."""
        if not self.labels:
            return (), None
        predicted, right = self._indices(logits, shards, expected, parts)
        return class_report(predicted, right, labels=self.labels)

    def _indices(
        self, logits: Sequence[Scores], shards: Sequence[int], expected: Sequence[Any], parts: Sequence[float] | None
    ) -> tuple[list[int], list[int]]:
        """The answers and the right ones, as indices of labels."""
        logits_MNC, weights = np.stack(logits), _weights(shards, parts)  # noqa: N806
        index = {label: number for number, label in enumerate(self.labels)}
        predicted = chosen(aggregate(logits_MNC, self.aggregation, weights_M=weights), logits_MNC, weights_M=weights)
        return predicted.tolist(), [index[label] for label in expected]


def _weights(shards: Sequence[int], parts: Sequence[float] | None) -> NDArray[np.float64] | None:
    """None where every shard has one member: then the plain mean is taken."""
    return None if len(set(shards)) == len(shards) else shares(shards, parts)
