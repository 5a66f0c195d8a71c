"""From the members' logits to labels or numbers, and to metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from s3t.prediction.aggregate import Scores, aggregate, chosen, mean, shares
from s3t.prediction.metrics import classification_metrics, regression_metrics


@dataclass(frozen=True, kw_only=True)
class Answers:
    """How a run's ensemble answers.

    Attributes:
        labels: the label set in the head's order; empty for a regression, which always answers with the mean.
        aggregation: logits, probabilities or vote.
    """

    labels: tuple[str, ...]
    aggregation: str

    def answer(
        self,
        logits_MNC: Scores,  # noqa: N803
        shards: Sequence[int],
    ) -> tuple[tuple[str | float, ...], Scores | None]:
        """The label or number of every input, and its probabilities, N x C (None for a regression).

        Args:
            logits_MNC: of the members.
            shards: of every member, its shard.
        """
        weights = _weights(shards)
        if not self.labels:
            return tuple(mean(logits_MNC, weights)[:, 0].tolist()), None
        probabilities = aggregate(logits_MNC, self.aggregation, weights_M=weights)
        labels = chosen(probabilities, logits_MNC, weights_M=weights)
        return tuple(self.labels[index] for index in labels), probabilities

    def metrics(self, logits: Sequence[Scores], shards: Sequence[int], expected: Sequence[Any]) -> dict[str, Any]:
        """Accuracy, F1 and Matthews correlation, or Pearson correlation and root mean squared error.

        Args:
            logits: of every member, N x C.
            shards: of every member, its shard.
            expected: the right answers, N.
        """
        logits_MNC, weights = np.stack(logits), _weights(shards)  # noqa: N806
        if not self.labels:
            numbers = np.asarray(expected, dtype=np.float64)
            return dict(regression_metrics(mean(logits_MNC, weights)[:, 0], numbers))
        index = {label: number for number, label in enumerate(self.labels)}
        predicted = chosen(aggregate(logits_MNC, self.aggregation, weights_M=weights), logits_MNC, weights_M=weights)
        right = [index[label] for label in expected]
        return dict(classification_metrics(predicted.tolist(), right, labels=len(self.labels)))


def _weights(shards: Sequence[int]) -> NDArray[np.float64] | None:
    """None where every shard has one member: then the plain mean is taken."""
    return None if len(set(shards)) == len(shards) else shares(shards)
