"""Measures of written texts against those of the data: exact match, and ROUGE-L (Lin 2004) by the field's library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from s3t.errors import InputError
from s3t.extras import how_to_install


def rouge_scorer() -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        problem = (
            f"texts are compared by rouge-score, which is not installed; install it with: {how_to_install('texts')}"
        )
        raise InputError("evaluate", problem) from None
    return RougeScorer(["rougeL"], use_stemmer=True)


def text_metrics(written: Sequence[str], expected: Sequence[str]) -> dict[str, float]:
    """Means over texts: share that are equal but for white space at their ends; F1 and recall of ROUGE-L, stemmed."""
    scorer = rouge_scorer()
    scores = [scorer.score(right, text)["rougeL"] for text, right in zip(written, expected, strict=True)]
    equal = [text.strip() == right.strip() for text, right in zip(written, expected, strict=True)]
    return {
        "exact_match": sum(equal) / len(equal),
        "rouge_l": sum(score.fmeasure for score in scores) / len(scores),
        "rouge_l_recall": sum(score.recall for score in scores) / len(scores),
    }
