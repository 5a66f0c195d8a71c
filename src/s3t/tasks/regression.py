"""Regression: each record has a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s3t.tasks.aggregate import Scores, mean
from s3t.tasks.metrics import regression_metrics
from s3t.tasks.numbers import number_of
from s3t.tasks.task import Kind

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A number a record: squared error. Members always answer with their mean."""

    column: Kind | None = "number"
    wanted: str = "a finite number"
    has_labels: bool = False
    one_label: bool = False
    takes_prototypes: bool = False
    has_threshold: bool = False
    answer: str = "label"

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> float | None:
        """The number."""
        return number_of(cell)

    def expected(self, rows: pa.Table) -> list[Any]:
        """The labels."""
        return list(rows["label"].to_pylist())

    def labels_in(self, label: Any) -> Iterable[str]:
        """None."""
        return ()

    def outputs(self, labels: Sequence[str]) -> int:
        """One."""
        return 1

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Tensor:
        """The number, float32."""
        import torch

        return torch.tensor(self.expected(rows), dtype=torch.float32)[:, None]

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:  # noqa: N803
        """Mean squared error."""
        from torch.nn.functional import mse_loss

        return mse_loss(logits_UC.float().squeeze(-1), targets_U)

    def answers(
        self,
        logits_MUC: Scores,  # noqa: N803
        weights_M: NDArray[np.float64] | None,  # noqa: N803
        labels: Sequence[str],
        *,
        aggregation: str,
        threshold: float,
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
