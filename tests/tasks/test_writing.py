"""Measures of written texts."""

import pytest

from s3t.tasks.targets import text_metrics


def test_rouge_l_is_of_the_longest_common_subsequence_of_words():
    """Of four words, the first and the last two are in the right order: precision 3/4, recall 3/3."""
    found = text_metrics(["harbours need big cranes", " no "], ["harbours need cranes", "no"])
    assert found["rouge_l_recall"] == 1.0
    assert found["rouge_l"] == pytest.approx((2 * 0.75 / 1.75 + 1) / 2)
    assert found["exact_match"] == 0.5
