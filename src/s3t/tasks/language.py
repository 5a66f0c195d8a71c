"""Causal language modelling: each token is predicted from those before it. No column holds a label."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from s3t.tasks.aggregate import Scores, Weights
from s3t.tasks.task import ANSWERED, Kind, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CausalLanguage(Target):
    """Target with a token of the vocabulary after each token: softmax and cross-entropy.

    Members answer with log-probabilities of the right tokens, and the ensemble with those of the mean of the members'
    probabilities, whatever `prediction.aggregation` says: the other ways need every member's whole vocabulary.
    """

    column: Kind | None = None
    wanted: str = "nothing"
    has_labels: bool = False
    over_vocabulary: bool = True
    answer: str = "log_probabilities"
    verbs: tuple[str, ...] = ("generate", "score")

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> Any:
        """No label is read."""
        return None

    def labels_in(self, label: Any) -> Iterable[str]:
        """No labels."""
        return ()

    def expected(self, rows: pa.Table) -> list[Any]:
        """None for each record: its own tokens are the right ones."""
        return [None] * rows.num_rows

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Sequence[Tensor]:
        """The tokens that follow those at which the model answers, int64."""
        return [record["input_ids"][1:][record[ANSWERED][:-1]] for record in records]

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        """Cross-entropy over the vocabulary, the mean over tokens."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits_UC.float(), targets_U)

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        """The log-probability of each right token under the mean of the members' probabilities."""
        weights = np.full(len(logits_MUC), 1 / len(logits_MUC)) if weights_M is None else weights_M
        with np.errstate(divide="ignore"):  # of a weight of 0
            weighted = logits_MUC[:, :, 0] + np.log(weights)[:, None]
        return np.logaddexp.reduce(weighted, axis=0).tolist(), None

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Perplexity and mean loss (nats) a token, and the number of tokens; None where there is no token."""
        each = [value for answer in answers for value in answer]
        if not each:
            return {"perplexity": None, "loss": None, "tokens": 0}
        loss = -math.fsum(each) / len(each)
        return {"perplexity": math.exp(loss) if loss < 700 else None, "loss": loss, "tokens": len(each)}

    def score(self, metrics: Mapping[str, Any]) -> float:
        """The mean loss, below zero."""
        return -math.inf if metrics["loss"] is None else -float(metrics["loss"])

    def report(
        self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]
    ) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]:
        """Empty report: there are no labels."""
        return (), None
