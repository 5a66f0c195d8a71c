"""Results of `predict`, `score`, `generate` and `evaluate`. `to_json` is the document that --json prints."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from s3t.core import Kind, Order, Stage
from s3t.results.base import as_html
from s3t.wording import counted

if TYPE_CHECKING:
    import pandas as pd

    from s3t.prediction.generation import Finish
    from s3t.tasks import Target
    from s3t.tasks.aggregate import Scores

_SHOWN = 3
"""Labels that a `repr` counts."""
_MOST_LOSS = 700.0
"""Largest loss with a finite exponential."""


class Member(NamedTuple):
    """A prefix that answered, or prototypes."""

    shard: int
    prefix: Order
    """Its slices, in the order of training; or those whose prototypes there are."""
    key: str
    """Key of its deepest stage's artifact, and of those that its head was solved from; without a model, of what slices
    left. They are separated by commas."""
    kind: Kind = "model"
    seen: int = 0
    """The newest addition that the model has learned."""


@dataclass(frozen=True, kw_only=True)
class Answered(ABC):
    """Result of one generation's ensemble, for each input."""

    generation: int
    members: tuple[Member, ...]
    """The prefixes that answered, in the order of the shards; `Run` takes them as `prefixes`."""
    ids: tuple[str, ...] | None = field(repr=False)
    """The inputs' ids where the data has the id column."""
    places: Sequence[int] = field(repr=False)
    """Position of each input in the user's data: line of a CSV or JSON lines file, else row, counted from 0."""

    @abstractmethod
    def rows(self) -> list[dict[str, Any]]:
        """A mapping for each input."""

    def to_pandas(self) -> pd.DataFrame:
        """The rows as a frame."""
        import pandas as pd

        return pd.DataFrame(self.rows())

    def _names(self) -> list[dict[str, Any]]:
        """The id of each input, else its row."""
        return [{"row": place} for place in self.places] if self.ids is None else [{"id": id} for id in self.ids]

    def _document(self, **more: Any) -> dict[str, Any]:
        members = [Stage(m.shard, m.prefix, m.kind, seen=m.seen).to_json() for m in self.members]
        return {"generation": self.generation, "members": members, **more}


@dataclass(frozen=True, kw_only=True)
class Predictions(Answered):
    """Answers to inputs."""

    target: Target = field(repr=False)
    """The task's target."""
    classes: tuple[str, ...]
    """The label set, in the order of the probabilities' columns; empty where the task has none."""
    predicted: tuple[Any, ...]
    """The answer to every input: a label, a tuple of labels, a tuple of each word's tag (None for words that are cut),
    or a number."""
    probabilities: Scores | None
    """N x C, of all words one after another where each has a tag. None for a regression, and where the recipe answers
    with labels alone."""
    logits: Scores
    """Logits of every member, M x N x C, in the order of `members`; -inf of labels of which nothing is learned yet."""
    counts: Sequence[int] | None = field(repr=False)
    """Number of rows of the probabilities of each input; None: one."""
    cut: Sequence[bool] = field(repr=False)
    """For each input, True if it has more tokens than max_length, so that only the first ones are read. Empty for
    language models."""

    def __repr__(self) -> str:
        """Counts in one line, without inputs."""
        inputs = f"{counted(len(self.predicted), 'input')}, {counted(len(self.members), 'member')}"
        if self.classes:
            counts = Counter(
                label for answer in self.predicted for label in self.target.labels_in(answer)
            ).most_common()
            shown = [f"{count} {label}" for label, count in counts[:_SHOWN]]
            more = [f"{len(counts) - _SHOWN} more classes"] if len(counts) > _SHOWN else []
            values = ", ".join(shown + more)
        else:
            numbers = np.asarray(self.predicted, dtype=np.float64)
            values = f"{numbers.min():.4g} to {numbers.max():.4g}" if len(numbers) else ""
        return f"Predictions(generation {self.generation}, {inputs}{': ' * bool(values)}{values})"

    def __len__(self) -> int:
        return len(self.predicted)

    def part(self, first: int, last: int) -> Predictions:
        """The answers to the inputs from one to before another, of N, without their ids and places."""
        counts = self.counts
        ends = range(len(self) + 1) if counts is None else list(itertools.accumulate(counts, initial=0))
        rows = slice(ends[first], ends[last])
        return replace(
            self,
            predicted=self.predicted[first:last],
            probabilities=None if self.probabilities is None else self.probabilities[rows],
            logits=self.logits[:, rows],
            counts=None if counts is None else counts[first:last],
            cut=self.cut[first:last],
            ids=None,
            places=range(last - first),
        )

    def rows(self, *, top: int | None = None) -> list[dict[str, Any]]:
        """Answers as mappings, one for each input.

        Each has the input's id, else its row; label (or labels, or tags); generation; and probabilities by label (of
        each word, where words have tags; None for words that are cut).

        Args:
            top: number of labels, the likeliest first; None: all, in the order of `classes`.
        """
        rows = self._names()
        first = None if self.counts is None else list(itertools.accumulate(self.counts, initial=0))
        for number, (row, answer) in enumerate(zip(rows, self.predicted, strict=True)):
            row[self.target.answer] = list(answer) if isinstance(answer, tuple) else answer
            if self.probabilities is not None and first is None:
                row["probabilities"] = self._probabilities_of(number, set(self.target.labels_in(answer)), top)
            elif self.probabilities is not None and first is not None:
                row["probabilities"] = [
                    None if tag is None else self._probabilities_of(first[number] + word, {tag}, top)
                    for word, tag in enumerate(answer)
                ]
            row["generation"] = self.generation
        return rows

    def _probabilities_of(self, number: int, given: Collection[str], top: int | None) -> dict[str, float]:
        by_label = dict(zip(self.classes, self.probabilities[number].tolist(), strict=True))  # type: ignore[index]
        if top is None:
            return by_label
        # The answer is first, also where others are as likely: a tied vote is decided by more than the shares.
        likeliest = sorted(by_label, key=lambda name: (name not in given, -by_label[name]))
        return {name: by_label[name] for name in likeliest[:top]}

    def to_pandas(self) -> pd.DataFrame:
        """A row an input: `id` or `row`, `label` (or `labels`), `probability` of that label where there is one,
        `probability:LABEL` of each, and `generation`. A regression, tags, and labels alone have no probabilities."""
        import pandas as pd

        frame = pd.DataFrame({"row": list(self.places)} if self.ids is None else {"id": list(self.ids)})
        frame[self.target.answer] = list(self.predicted)
        if self.probabilities is not None and self.counts is None:
            if self.target.one_label:
                column = {label: index for index, label in enumerate(self.classes)}
                columns = [column[label] for label in self.predicted]
                frame["probability"] = self.probabilities[np.arange(len(columns)), columns]
            each = pd.DataFrame(self.probabilities, columns=[f"probability:{label}" for label in self.classes])
            frame = pd.concat([frame, each], axis=1)
        frame["generation"] = self.generation
        return frame

    def to_json(self, *, top: int | None = None) -> dict[str, Any]:
        """The document of `s3t predict --json`."""
        return self._document(cut=sum(self.cut), predictions=self.rows(top=top))


@dataclass(frozen=True, kw_only=True)
class Likelihoods(Answered):
    """Probabilities of texts: the mean of the members', token by token."""

    log_probabilities: tuple[tuple[float, ...], ...]
    """Natural logarithm of the probability of each learned token, by record."""
    logits: Scores = field(repr=False)
    """Log-probabilities of each member alone, for all tokens one after another, M x U x 1."""

    @classmethod
    def of(cls, predictions: Predictions) -> Likelihoods:
        """Likelihoods of a language model's answers."""
        common = {each.name: getattr(predictions, each.name) for each in fields(Answered)}
        return cls(log_probabilities=predictions.predicted, logits=predictions.logits, **common)

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
        return [
            {
                **name,
                "log_likelihood": math.fsum(each),
                "tokens": len(each),
                "perplexity": _perplexity(each),
                "generation": self.generation,
            }
            for name, each in zip(self._names(), self.log_probabilities, strict=True)
        ]

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t score --json`."""
        tokens = sum(map(len, self.log_probabilities))
        return self._document(perplexity=self.perplexity, tokens=tokens, scores=self.rows())


def _perplexity(values: Sequence[float]) -> float | None:
    if not values:
        return None
    loss = -math.fsum(values) / len(values)
    return math.exp(loss) if loss < _MOST_LOSS else None


@dataclass(frozen=True, kw_only=True)
class Texts(Answered):
    """Texts written after prompts."""

    texts: tuple[str, ...]
    """After every prompt, without it; with `n` above 1 so many, one after the other."""
    finish: tuple[Finish, ...]
    """Why each ended: `stop` at its end or at a stop text, `length` at the greatest length."""
    tokens: tuple[int, ...]
    """Written for each, the end of text included."""
    n: int
    """Texts after each prompt."""

    def __repr__(self) -> str:
        """Counts in one line, without texts."""
        texts = f"{counted(len(self.texts), 'text')} of {counted(sum(self.tokens), 'token')}"
        return f"Texts(generation {self.generation}, {counted(len(self.members), 'member')}: {texts})"

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self) -> list[dict[str, Any]]:
        """A mapping for each text: its prompt's id, else row; choice, text, finish, tokens, generation."""
        choices = [{**name, "choice": choice} for name in self._names() for choice in range(self.n)]
        each = zip(choices, self.texts, self.finish, self.tokens, strict=True)
        return [
            {**choice, "text": text, "finish": finish, "tokens": tokens, "generation": self.generation}
            for choice, text, finish, tokens in each
        ]

    def to_json(self) -> dict[str, Any]:
        """The document of `s3t generate --json`."""
        return self._document(texts=self.rows())


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Metrics of the ensemble on labelled data.

    `metrics` has the measures of the task, by name; `per_shard` the same for every member alone;
    `per_depth` for the ensemble whose members use at most that many slices.
    """

    generation: int
    n: int
    metrics: dict[str, Any]
    per_shard: tuple[dict[str, Any], ...]
    per_depth: tuple[dict[str, Any], ...]
    notices: tuple[str, ...] = ()
    """Shards that answer no better than a guess, or worse than with fewer slices."""
    classes: tuple[str, ...] = ()
    """The label set; empty where the task has none."""
    per_class: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    """Label, precision, recall, f1 and support (number of records) of every class; empty without classes."""
    confusion: NDArray[np.int64] | None = None
    """C x C records: rows by their label, columns by what was predicted; None where no label stands for
    another."""

    def __repr__(self) -> str:
        return f"Evaluation({self.sentence})"

    def _repr_html_(self) -> str:
        tables = {"shards": self.per_shard, "cut to a depth": self.per_depth, "labels": self.per_class}
        return as_html(self.sentence, tables)

    @property
    def sentence(self) -> str:
        """The metrics in one line, as `s3t evaluate` prints them first."""
        shown = ", ".join(
            f"{name} {'undefined' if value is None else f'{value:.4f}'}" for name, value in self.metrics.items()
        )
        return f"{shown} on {counted(self.n, 'record')} (generation {self.generation})"

    def with_metrics(self, metrics: Mapping[str, Any]) -> Evaluation:
        """Copy of this evaluation with more measures of the ensemble."""
        return replace(self, metrics=self.metrics | dict(metrics))

    @property
    def accuracy(self) -> float:
        """Share of right answers; KeyError for a regression."""
        return float(self.metrics["accuracy"])

    @property
    def means(self) -> tuple[dict[str, Any], ...]:
        """Under the classes, as scikit-learn's report has them: their mean, and their mean by support."""
        if not self.per_class:
            return ()
        names = ("precision", "recall", "f1")
        values = np.array([[each[name] for name in names] for each in self.per_class])
        supports = np.array([each["support"] for each in self.per_class])
        weighted = supports @ values / max(supports.sum(), 1)
        return tuple(
            {"label": label, **dict(zip(names, mean.tolist(), strict=True)), "support": int(supports.sum())}
            for label, mean in (("macro avg", values.mean(axis=0)), ("weighted avg", weighted))
        )

    def to_json(self, *, report: bool = False) -> dict[str, Any]:
        """The document of `s3t evaluate --json`; with `report`, each class and the confusion matrix, too."""
        document = {
            **self.metrics,
            "n": self.n,
            "generation": self.generation,
            "per_shard": list(self.per_shard),
            "per_depth": list(self.per_depth),
            "notices": list(self.notices),
        }
        if report:
            matrix = None if self.confusion is None else self.confusion.tolist()
            document |= {
                "classes": list(self.classes),
                "per_class": list(self.per_class),
                "means": list(self.means),
                "confusion": matrix,
            }
        return document
