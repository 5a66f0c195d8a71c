"""Metrics of answers, as in GLUE and SuperGLUE: accuracy, F1, Matthews correlation; Pearson correlation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def classification_metrics(predicted: Sequence[int], expected: Sequence[int], *, labels: int) -> dict[str, float]:
    """Accuracy, F1, and the Matthews correlation coefficient (0 where either side has one label alone).

    F1 is that of the second of two labels (MRPC, QQP, MultiRC: the positive one), and of more the mean over all of them
    (CB). It is 0 for a label that neither side has.
    """
    from sklearn.metrics import f1_score, matthews_corrcoef  # here: its import is slow

    each = f1_score(expected, predicted, labels=list(range(labels)), average=None, zero_division=0.0)
    varied = len({*predicted, *expected}) > 1
    return {
        "accuracy": float(np.mean(np.asarray(predicted) == np.asarray(expected))),
        "f1": float(each[1] if labels == 2 else each.mean()),
        "matthews": float(matthews_corrcoef(expected, predicted)) if varied else 0.0,
    }


def class_report(
    predicted: Sequence[int], expected: Sequence[int], *, labels: Sequence[str]
) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64]]:
    """Each class's precision, recall, F1 and support, and the confusion matrix, C x C: rows by the right label.

    A class that neither side has has 0 of everything.
    """
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    indices = list(range(len(labels)))
    scores = precision_recall_fscore_support(expected, predicted, labels=indices, zero_division=0.0)
    return _rows(labels, *scores), np.asarray(confusion_matrix(expected, predicted, labels=indices), dtype=np.int64)


def ordinal_metrics(predicted: Sequence[int], expected: Sequence[int], *, labels: int) -> dict[str, float | None]:
    """Accuracy, mean absolute error in label steps, and Cohen's kappa with quadratic weights.

    The kappa is None where both sides have one label alone, and the same.
    """
    from sklearn.metrics import cohen_kappa_score

    steps = np.abs(np.asarray(predicted) - np.asarray(expected))
    varied = len({*predicted, *expected}) > 1
    kappa = cohen_kappa_score(expected, predicted, labels=list(range(labels)), weights="quadratic") if varied else None
    return {
        "accuracy": float((steps == 0).mean()),
        "mae": float(steps.mean()),
        "quadratic_kappa": None if kappa is None else float(kappa),
    }


def regression_metrics(predicted: NDArray[np.float64], expected: NDArray[np.float64]) -> dict[str, float | None]:
    """Pearson correlation (None where either side is constant or a single number) and root mean squared error."""
    from scipy.stats import pearsonr

    error = float(np.sqrt(np.mean((predicted - expected) ** 2)))
    varied = len(expected) > 1 and np.ptp(predicted) > 0 and np.ptp(expected) > 0
    return {"pearson": float(pearsonr(predicted, expected).statistic) if varied else None, "rmse": error}


def indicator_metrics(predicted: NDArray[np.int64], expected: NDArray[np.int64]) -> dict[str, float]:
    """Micro and macro F1, and the share of records that are right in every label.

    Both sides are N x C, 1 where a record has the label. F1 of a label that neither side has is 0.
    """
    from sklearn.metrics import f1_score

    return {
        "micro_f1": float(f1_score(expected, predicted, average="micro", zero_division=0.0)),
        "macro_f1": float(f1_score(expected, predicted, average="macro", zero_division=0.0)),
        "accuracy": float((predicted == expected).all(axis=1).mean()),
    }


def indicator_report(
    predicted: NDArray[np.int64], expected: NDArray[np.int64], *, labels: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """Each label's precision, recall, F1 and support. Arguments as `indicator_metrics`."""
    from sklearn.metrics import precision_recall_fscore_support

    scores = precision_recall_fscore_support(expected, predicted, average=None, zero_division=0.0)
    return _rows(labels, *scores)


def _rows(labels: Sequence[str], *measures: Iterable[Any]) -> tuple[dict[str, Any], ...]:
    """A mapping a label: precision, recall, f1 and support."""
    return tuple(
        {
            "label": label,
            "precision": float(precision),
            "recall": float(recall),
            "f1": float(f1),
            "support": int(support),
        }
        for label, precision, recall, f1, support in zip(labels, *measures, strict=True)
    )
