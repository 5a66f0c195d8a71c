"""How good answers are: accuracy, Matthews correlation (CoLA), Pearson correlation (regression)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def classification_metrics(predicted: Sequence[int], expected: Sequence[int]) -> dict[str, float]:
    """Accuracy, and the Matthews correlation coefficient (0 where either side has one label alone)."""
    from sklearn.metrics import matthews_corrcoef  # here: its import is slow

    accuracy = float(np.mean(np.asarray(predicted) == np.asarray(expected)))
    return {"accuracy": accuracy, "matthews": float(matthews_corrcoef(expected, predicted))}


def regression_metrics(predicted: NDArray[np.float64], expected: NDArray[np.float64]) -> dict[str, float | None]:
    """Pearson correlation (None where either side is constant or a single number) and root mean squared error."""
    from scipy.stats import pearsonr

    error = float(np.sqrt(np.mean((predicted - expected) ** 2)))
    varied = len(expected) > 1 and np.ptp(predicted) > 0 and np.ptp(expected) > 0
    return {"pearson": float(pearsonr(predicted, expected).statistic) if varied else None, "rmse": error}
