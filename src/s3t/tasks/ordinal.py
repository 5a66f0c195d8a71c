"""Ordinal classification: each record has one label of a set that has an order, as ratings have.

A label k of L is L - 1 binary answers, "above label 0", ..., "above label L - 2", learned by binary cross-entropy, and
answered by the number of them that are likelier than not (Niu et al., "Ordinal Regression with Multiple Output CNN for
Age Estimation", CVPR 2016, section 3). CORAL (Cao, Mirjalili and Raschka, doi:10.1016/j.patrec.2020.11.008) has the
same loss and answer, and one weight vector that all outputs share. Here each output has its own, as the heads of
transformers are made, so probabilities may rise where they should fall. They are sorted before labels get theirs.

Shapes: as `task.py`; T = L - 1 thresholds, which are the head's outputs C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s3t.tasks.aggregate import Scores, Weights, mean, sigmoid
from s3t.tasks.labels import indices_of
from s3t.tasks.metrics import class_report, ordinal_metrics
from s3t.tasks.task import Kind, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Ordinal(Target):
    """Target with one label a record, of a set in declared order: a sigmoid and binary cross-entropy a threshold."""

    column: Kind | None = "category"
    wanted: str = "a label"
    has_labels: bool = True
    one_label: bool = True
    ordered: bool = True

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> str | None:
        """The label that the cell means."""
        return label_of(cell)

    def labels_in(self, label: Any) -> Iterable[str]:
        """The record's one label."""
        return (label,)

    def outputs(self, labels: Sequence[str]) -> int:
        """T: one for each label but the last."""
        return len(labels) - 1

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Tensor:
        """1 for each threshold that the label is above, else 0: float32, N x 1 x T."""
        import torch

        indices_N = torch.tensor(indices_of(self.expected(rows), labels), dtype=torch.int64)
        return (indices_N[:, None, None] > torch.arange(len(labels) - 1)).float()

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        """Binary cross-entropy: the sum over thresholds, the mean over records."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(logits_UC.float(), targets_U) * logits_UC.shape[1]

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        """The median label: as many steps up as there are thresholds that the record is likelier above than not.

        `logits`: sigmoids of the mean; `probabilities`: mean of the sigmoids; `vote`: the label of most members, each
        with its own median; a tied vote goes to the tied label with the highest mean probability.
        """
        each_MUT = sigmoid(logits_MUC)
        above_UT = sigmoid(mean(logits_MUC, weights_M)) if aggregation == "logits" else mean(each_MUT, weights_M)
        probabilities, indices = _of_labels(above_UT), _medians(above_UT)
        if aggregation == "vote":
            votes = mean(np.eye(len(labels))[_medians(each_MUT)], weights_M)
            tied = votes >= votes.max(axis=-1, keepdims=True)
            probabilities, indices = votes, np.where(tied, probabilities, -1.0).argmax(axis=-1)
        return [labels[index] for index in indices], probabilities

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Accuracy, mean absolute error in label steps, and Cohen's kappa with quadratic weights."""
        return dict(ordinal_metrics(indices_of(answers, labels), indices_of(expected, labels), labels=len(labels)))

    def score(self, metrics: Mapping[str, Any]) -> float:
        """The error in label steps, below zero."""
        return -float(metrics["mae"])

    def report(
        self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]
    ) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]:
        """Measures of each label, and the confusion matrix."""
        return class_report(indices_of(answers, labels), indices_of(expected, labels), labels=labels)


def _medians(above: Scores) -> NDArray[np.int64]:
    """The label's index, from the probabilities of being above each threshold, which are the last axis.

    >>> _medians(np.array([[0.9, 0.6, 0.1], [0.2, 0.1, 0.0]])).tolist()
    [2, 0]
    """
    indices: NDArray[np.int64] = (above > 0.5).sum(axis=-1)
    return indices


def _of_labels(above_UT: Scores) -> Scores:
    """The probability of each label, U x L; those of being above a threshold are sorted, and may then only fall.

    >>> _of_labels(np.array([[0.75, 0.25], [0.25, 0.75]])).tolist()
    [[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]]
    """
    falling = -np.sort(-above_UT, axis=-1)
    probabilities: Scores = -np.diff(falling, axis=-1, prepend=1.0, append=0.0)
    return probabilities
