"""How members answer together (paper: the mean of their logits). Pure numpy.

Shapes: M members, N inputs, C labels (1 for a regression).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]


def softmax(logits_NC: Scores) -> Scores:  # noqa: N803
    """Probabilities over the last axis.

    >>> softmax(np.array([[0.0, 0.0]])).tolist()
    [[0.5, 0.5]]
    """
    shifted = np.exp(logits_NC - logits_NC.max(axis=-1, keepdims=True))
    probabilities: Scores = shifted / shifted.sum(axis=-1, keepdims=True)
    return probabilities


def aggregate(logits_MNC: Scores, how: str) -> Scores:  # noqa: N803
    """The ensemble's probability of every label, N x C.

    Args:
        logits_MNC: the members' logits, at least one member.
        how: `logits` (softmax of the mean), `probabilities` (mean of the softmax), or `vote` (the share of
            members that choose the label).

    Raises:
        ValueError: there is no member, or no such way.
    """
    if logits_MNC.shape[0] == 0:
        raise ValueError("an ensemble needs at least one member")
    if how == "logits":
        return softmax(logits_MNC.mean(axis=0))
    if how == "probabilities":
        mean: Scores = softmax(logits_MNC).mean(axis=0)
        return mean
    if how == "vote":
        labels = logits_MNC.shape[-1]
        votes: Scores = np.eye(labels)[logits_MNC.argmax(axis=-1)].mean(axis=0)
        return votes
    raise ValueError(f"no aggregation is called {how!r}; use logits, probabilities or vote")


def chosen(probabilities_NC: Scores, logits_MNC: Scores) -> NDArray[np.int64]:  # noqa: N803
    """The label of every input, N: the likeliest; a tied vote goes to the tied label with the highest mean probability.

    >>> votes, logits = np.array([[0.5, 0.5]]), np.array([[[1.0, 0.0]], [[0.0, 3.0]]])
    >>> chosen(votes, logits).tolist()
    [1]
    """
    best = probabilities_NC.max(axis=-1, keepdims=True)
    tied = probabilities_NC >= best
    labels: NDArray[np.int64] = np.where(tied, softmax(logits_MNC).mean(axis=0), -1.0).argmax(axis=-1)
    return labels
