"""Multi-label classification: each record has any number of labels of a set, perhaps none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s3t.tasks.aggregate import Scores, Weights, mean, sigmoid
from s3t.tasks.metrics import indicator_metrics, indicator_report
from s3t.tasks.task import Kind, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class MultiLabel(Target):
    """Target with any labels a record: a sigmoid and binary cross-entropy each.

    The threshold is declared, never fitted.
    """

    column: Kind | None = "categories"
    wanted: str = "a list of labels, nor text that columns.delimiter cuts into labels"
    has_labels: bool = True
    has_threshold: bool = True
    answer: str = "labels"

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> tuple[str, ...] | None:
        """The labels of the cell, sorted and without repetition."""
        labels = None if cell is None else {label_of(value) for value in cell}
        return None if labels is None or None in labels else tuple(sorted(filter(None, labels)))

    def labels_in(self, label: Any) -> Iterable[str]:
        """The record's labels."""
        return tuple(label)

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Tensor:
        """1 for each label that the record has, else 0: float32."""
        import torch

        return torch.from_numpy(_indicators(self.expected(rows), labels).astype(np.float32))[:, None]

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        """Binary cross-entropy, the mean over labels."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(logits_UC.float(), targets_U)

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        """The labels whose probability reaches the threshold.

        `logits`: sigmoid of the mean; `probabilities`: mean of the sigmoids; `vote`: the share of members in which the
        label reaches the threshold. More than half of them decide; at just half, the mean of the sigmoids does.
        """
        each = sigmoid(logits_MUC)
        if aggregation == "vote":
            shares = mean((each >= threshold).astype(np.float64), weights_M)
            assigned = (shares > 0.5) | ((shares == 0.5) & (mean(each, weights_M) >= threshold))
            probabilities = shares
        else:
            probabilities = sigmoid(mean(logits_MUC, weights_M)) if aggregation == "logits" else mean(each, weights_M)
            assigned = probabilities >= threshold
        return [tuple(label for label, has in zip(labels, row, strict=True) if has) for row in assigned], probabilities

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Micro and macro F1, and the share of records whose labels are all right."""
        return dict(indicator_metrics(_indicators(answers, labels), _indicators(expected, labels)))

    def score(self, metrics: Mapping[str, Any]) -> float:
        """Micro F1."""
        return float(metrics["micro_f1"])

    def report(
        self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]
    ) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]:
        """Measures of each label. There is no confusion matrix, since labels do not exclude each other."""
        return indicator_report(_indicators(answers, labels), _indicators(expected, labels), labels=labels), None


def _indicators(label_sets: Sequence[Sequence[str]], labels: Sequence[str]) -> NDArray[np.int64]:
    """Records x labels: 1 where the record has the label."""
    index = {label: number for number, label in enumerate(labels)}
    indicators = np.zeros((len(label_sets), len(labels)), dtype=np.int64)
    for row, names in enumerate(label_sets):
        indicators[row, [index[name] for name in names]] = 1
    return indicators
