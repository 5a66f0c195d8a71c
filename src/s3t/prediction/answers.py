"""From the members' logits to labels or numbers, and to metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from s3t.prediction.aggregate import Scores, aggregate, chosen
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

    def answer(self, logits_MNC: Scores) -> tuple[tuple[str | float, ...], Scores | None]:  # noqa: N803
        """The label or number of every input, and its probabilities, N x C (None for a regression)."""
        if not self.labels:
            return tuple(self._numbers(logits_MNC).tolist()), None
        probabilities = aggregate(logits_MNC, self.aggregation)
        return tuple(self.labels[index] for index in chosen(probabilities, logits_MNC)), probabilities

    def metrics(self, logits: Sequence[Scores], expected: Sequence[Any]) -> dict[str, Any]:
        """Accuracy, F1 and Matthews correlation, or Pearson correlation and root mean squared error."""
        logits_MNC = np.stack(logits)  # noqa: N806
        if not self.labels:
            numbers = np.asarray(expected, dtype=np.float64)
            return dict(regression_metrics(self._numbers(logits_MNC), numbers))
        index = {label: number for number, label in enumerate(self.labels)}
        predicted = chosen(aggregate(logits_MNC, self.aggregation), logits_MNC)
        right = [index[label] for label in expected]
        return dict(classification_metrics(predicted.tolist(), right, labels=len(self.labels)))

    @staticmethod
    def _numbers(logits_MNC: Scores) -> Scores:  # noqa: N803
        numbers: Scores = logits_MNC.mean(axis=0)[:, 0]
        return numbers
