"""What a model still shows of texts: measures over probabilities of tokens, and over written texts. Pure.

Definitions are those of open-unlearning (github.com/locuslab/open-unlearning). A text's tokens are those of its answer.
Its end of text counts for probability, perplexity and truth ratio; exact memorisation and extraction strength leave it
out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from scipy.stats import ks_2samp


class Told(NamedTuple):
    """What a model says of the tokens of one answer, each after the right ones before it."""

    log_probabilities: list[float]
    """Natural logarithm of each token's probability; the last is the end of text."""
    likeliest: list[bool]
    """Whether each token is the model's likeliest; the last is the end of text."""


def mean_log(told: Told) -> float:
    """Mean log-probability of a token, in nats; of no token 0."""
    return math.fsum(told.log_probabilities) / max(1, len(told.log_probabilities))


def perplexity(texts: Sequence[Told]) -> float:
    """Over all tokens of all texts.

    >>> round(perplexity([Told([math.log(0.5)] * 3, []), Told([math.log(0.25)], [])]), 4)  # 2 ** (5 / 4)
    2.3784
    """
    tokens = [value for told in texts for value in told.log_probabilities]
    return math.exp(min(700.0, -math.fsum(tokens) / len(tokens)))


def probability(told: Told) -> float:
    """Of the answer, to the power 1 / its tokens: 0..1.

    >>> round(probability(Told([math.log(0.5), math.log(0.125)], [])), 9)
    0.25
    """
    return math.exp(mean_log(told))


def truth_ratio(paraphrased: Told, perturbed: Sequence[Told]) -> float:
    """Geometric mean of the wrong answers' probabilities, over that of a right answer in other words; low: it knows.

    Args:
        paraphrased: the right answer in words that were not trained on.
        perturbed: wrong answers in the same words; at least one.

    >>> wrong = [Told([math.log(0.1)], []), Told([math.log(0.4)], [])]
    >>> round(truth_ratio(Told([math.log(0.8)], []), wrong), 9)  # sqrt(0.1 * 0.4) / 0.8
    0.25
    """
    return math.exp(min(700.0, statistics.fmean(mean_log(each) for each in perturbed) - mean_log(paraphrased)))


def exact_memorisation(told: Told) -> float:
    """Share of the answer's tokens that are the likeliest.

    >>> exact_memorisation(Told([], [True, False, True, True, False]))
    0.75
    """
    own = told.likeliest[:-1]
    return sum(own) / max(1, len(own))


def extraction_strength(told: Told) -> float:
    """Share of the answer that greedy writing gives after the rest of it: 1 - k / n for the least k that suffices.

    After k right tokens greedy writing gives the other n - k exactly if each of those is the likeliest. Where even the
    last token is not, this is 0; open-unlearning's code has 1 / n there.

    >>> extraction_strength(Told([], [True, False, True, True, False]))
    0.5
    """
    own = told.likeliest[:-1]
    right = next((count for count, good in enumerate(reversed(own)) if not good), len(own))
    return right / max(1, len(own))


def forget_quality(ratios: Sequence[float], reference: Sequence[float]) -> float:
    """P-value of the two-sample Kolmogorov-Smirnov test between truth ratios; low: the model is unlike the reference.

    Args:
        ratios: truth ratios of the model, one a question.
        reference: those of a model that was trained without the questions.

    >>> forget_quality([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    1.0
    """
    return float(ks_2samp(ratios, reference).pvalue)


def model_utility(values: Sequence[float]) -> float:
    """Harmonic mean; 0 if one of them is.

    >>> round(model_utility([0.5, 0.25]), 4)
    0.3333
    """
    return 0.0 if min(values) <= 0 else statistics.harmonic_mean(values)
