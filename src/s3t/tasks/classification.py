"""Classification: each record has one label of a set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s3t.tasks.aggregate import Scores, Weights, aggregate, choose
from s3t.tasks.labels import indices_of
from s3t.tasks.metrics import class_report, classification_metrics
from s3t.tasks.task import Kind, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Classification(Target):
    """Target with one label a record: softmax and cross-entropy."""

    column: Kind | None = "category"
    wanted: str = "a label"
    has_labels: bool = True
    one_label: bool = True
    takes_prototypes: bool = True

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> str | None:
        """The label that the cell means."""
        return label_of(cell)

    def labels_in(self, label: Any) -> Iterable[str]:
        """The record's one label."""
        return (label,)

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Tensor:
        """The label's index, int64."""
        import torch

        return torch.tensor(indices_of(self.expected(rows), labels), dtype=torch.int64)[:, None]

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        """Cross-entropy."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits_UC.float(), targets_U)

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        """The likeliest label."""
        probabilities = aggregate(logits_MUC, aggregation, weights_M=weights_M)
        indices = choose(probabilities, logits_MUC, weights_M=weights_M)
        return [labels[index] for index in indices], probabilities

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Accuracy, F1 and Matthews correlation."""
        return dict(
            classification_metrics(indices_of(answers, labels), indices_of(expected, labels), labels=len(labels))
        )

    def score(self, metrics: Mapping[str, Any]) -> float:
        """Accuracy."""
        return float(metrics["accuracy"])

    def report(
        self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]
    ) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]:
        """Measures of each label, and the confusion matrix."""
        return class_report(indices_of(answers, labels), indices_of(expected, labels), labels=labels)
