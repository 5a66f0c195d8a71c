"""Regression: each record has a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s3t.tasks.aggregate import Scores, Weights, mean
from s3t.tasks.metrics import regression_metrics
from s3t.tasks.task import Kind, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Regression(Target):
    """Target with a number a record: squared error. Members always answer with their mean."""

    column: Kind | None = "number"
    wanted: str = "a finite number"
    has_labels: bool = False

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> float | None:
        """The number."""
        return number_of(cell)

    def labels_in(self, label: Any) -> Iterable[str]:
        """No labels."""
        return ()

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Tensor:
        """The number, float32."""
        import torch

        return torch.tensor(self.expected(rows), dtype=torch.float32)[:, None]

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        """Mean squared error."""
        from torch.nn.functional import mse_loss

        return mse_loss(logits_UC.float().squeeze(-1), targets_U)

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        """The mean of the members."""
        return mean(logits_MUC, weights_M)[:, 0].tolist(), None

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Pearson correlation and root mean squared error."""
        return dict(regression_metrics(np.asarray(answers, np.float64), np.asarray(expected, np.float64)))

    def score(self, metrics: Mapping[str, Any]) -> float:
        """The error, below zero."""
        return -float(metrics["rmse"])

    def report(
        self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]
    ) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]:
        """Empty report: there are no labels."""
        return (), None


def number_of(value: Any) -> float | None:
    """A regression label as a finite number, or None.

    >>> number_of("2.5"), number_of(3), number_of("x"), number_of(float("inf")), number_of(10**400)
    (2.5, 3.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
