"""Result of `score`, with `to_json()`: the document that the command line prints with --json."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from s3t.core import Stage
from s3t.prediction.answers import Member
from s3t.run.answers import Predictions
from s3t.tasks.aggregate import Scores
from s3t.wording import counted

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Likelihoods:
    """Probabilities of texts under one generation's ensemble: the mean of its members', token by token."""

    generation: int
    members: tuple[Member, ...]
    """The prefixes that answered, in the order of the shards; `Run.score` takes them as `prefixes`."""
    log_probabilities: tuple[tuple[float, ...], ...]
    """Natural logarithm of the probability of each learned token, by record."""
    logits: Scores = field(repr=False)
    """Log-probabilities of each member alone, for all tokens one after another, M x U x 1."""
    ids: tuple[str, ...] | None = field(repr=False)
    """The records' ids where the data has the id column."""
    places: Sequence[int] = field(repr=False)
    """Position of each record in the user's data: line of a CSV or JSON lines file, else row, counted from 0."""

    @classmethod
    def of(cls, predictions: Predictions) -> Likelihoods:
        """Likelihoods of a language model's answers."""
        return cls(
            generation=predictions.generation,
            members=predictions.members,
            log_probabilities=predictions.predicted,
            logits=predictions.logits,
            ids=predictions.ids,
            places=predictions.places,
        )

    def __repr__(self) -> str:
        """Counts in one line, without records."""
        shown = "undefined" if self.perplexity is None else f"{self.perplexity:.4g}"
        records = counted(len(self.log_probabilities), "record")
        return f"Likelihoods(generation {self.generation}, {records}: perplexity {shown})"

    @property
    def perplexity(self) -> float | None:
        """Perplexity over all tokens of all records; None where there is none."""
        return _perplexity([value for each in self.log_probabilities for value in each])

    def rows(self) -> list[dict[str, Any]]:
        """A mapping for each record: its id, else its row; log_likelihood, tokens, perplexity, generation."""
        names: list[dict[str, Any]] = (
            [{"row": place} for place in self.places] if self.ids is None else [{"id": one} for one in self.ids]
        )
        return [
            {
                **name,
                "log_likelihood": math.fsum(each),
                "tokens": len(each),
                "perplexity": _perplexity(each),
                "generation": self.generation,
            }
            for name, each in zip(names, self.log_probabilities, strict=True)
        ]

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t score --json`."""
        return {
            "generation": self.generation,
            "members": [Stage(member.shard, member.prefix, member.kind).to_json() for member in self.members],
            "perplexity": self.perplexity,
            "tokens": sum(map(len, self.log_probabilities)),
            "scores": self.rows(),
        }


def _perplexity(values: Sequence[float]) -> float | None:
    if not values:
        return None
    loss = -math.fsum(values) / len(values)
    return math.exp(loss) if loss < _MOST_LOSS else None


_MOST_LOSS = 700.0
"""Largest loss with a finite exponential."""
