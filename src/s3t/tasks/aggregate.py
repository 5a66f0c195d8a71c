"""Aggregation of the members' logits (paper: their mean). Pure numpy.

Shapes: M members, N inputs, C labels (1 for a regression).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Weights: TypeAlias = NDArray[np.float64] | None
"""Weights of the members, which add up to 1; None: equal weights."""


def softmax(logits_NC: Scores) -> Scores:
    shifted = np.exp(logits_NC - logits_NC.max(axis=-1, keepdims=True))
    probabilities: Scores = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities


def sigmoid(logits: Scores) -> Scores:
    probabilities: Scores = np.exp(-np.logaddexp(0.0, -logits))
    return probabilities


def shares(shards: Sequence[int], parts: Sequence[float] | None = None) -> NDArray[np.float64]:
    """The weight of every member, M numbers that add up to 1. All shards have the same weight.

    `parts` are weights of members within their shard, up to a common factor. None, or only zeros in a shard: equal
    weights there.

    >>> shares([0, 0, 1]).tolist(), shares([0, 0, 1], [0.75, 0.25, 0.0]).tolist()
    ([0.25, 0.25, 0.5], [0.375, 0.125, 0.5])
    """
    raw = np.ones(len(shards)) if parts is None else np.asarray(parts, dtype=np.float64)
    of_shard = np.unique(shards, return_inverse=True)[1]
    raw = np.where(np.bincount(of_shard, raw)[of_shard] == 0, 1.0, raw)
    weights: NDArray[np.float64] = raw / np.bincount(of_shard, raw)[of_shard] / len(set(shards))
    return weights


def aggregate(logits_MNC: Scores, how: str, *, weights_M: Weights = None) -> Scores:
    """The ensemble's probability of every label, N x C, of at least one member: `logits` (softmax of the mean),
    `probabilities` (mean of the softmax), or `vote` (the share of members that choose the label).
    """
    if logits_MNC.shape[0] == 0:
        raise ValueError("an ensemble needs at least one member")
    if how == "logits":
        return softmax(mean(logits_MNC, weights_M))
    if how == "probabilities":
        return mean(softmax(logits_MNC), weights_M)
    if how == "vote":
        return mean(np.eye(logits_MNC.shape[-1])[logits_MNC.argmax(axis=-1)], weights_M)
    raise ValueError(f"no aggregation is called {how!r}; use logits, probabilities or vote")


def mean(scores_MNC: Scores, weights_M: Weights) -> Scores:
    """The mean over the members, N x C; see `aggregate`."""
    average: Scores = scores_MNC.mean(axis=0) if weights_M is None else np.tensordot(weights_M, scores_MNC, axes=1)
    return average


def choose(probabilities_NC: Scores, logits_MNC: Scores, *, weights_M: Weights = None) -> NDArray[np.int64]:
    """The label of every input, N: the likeliest; a tied vote goes to the tied label with the highest mean probability.

    >>> votes, logits = np.array([[0.5, 0.5]]), np.array([[[1.0, 0.0]], [[0.0, 3.0]]])
    >>> choose(votes, logits).tolist()
    [1]
    """
    best = probabilities_NC.max(axis=-1, keepdims=True)
    tied = probabilities_NC >= best
    labels: NDArray[np.int64] = np.where(tied, mean(softmax(logits_MNC), weights_M), -1.0).argmax(axis=-1)
    return labels
