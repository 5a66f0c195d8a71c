"""Task: inputs and a target. Other rooms use these two, and know no task by its name.

torch, pyarrow and scikit-learn are imported by the functions that compute: recipes are read without them.

Shapes: M members; N records; U answers, one a record where `Inputs` says no other; C outputs of the head; L labels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from s3t.errors import InputError
from s3t.tasks.aggregate import Scores, Weights

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from torch import Tensor

Kind: TypeAlias = Literal[
    "name", "category", "number", "categories", "text", "words", "image", "language", "messages", "date"
]
"""Content of a column: ids or subjects; labels or groups; a regression's labels; lists of labels; texts; lists of
words; images; texts of a language model; chats; dates."""

Report: TypeAlias = "tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]"
"""Precision, recall, F1 and support of each label, and the confusion matrix C x C, rows by the right label, where there
is one."""

GUESSES = 20
"""Labels that are tried as the answer to every input, the most frequent ones."""
LOWER_IS_BETTER = {"mae", "rmse", "loss"}
"""Measures of which less is better."""
ANSWERED = "answered"
"""Entry of an encoded record and of a batch, bool, a value a token: tokens at which the model answers. Without it, one
answer a record."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Inputs of a model."""

    kind: Kind
    """Kind of the input columns; it also decides the encoder."""
    forms: tuple[tuple[str, ...], ...]
    """The fields of the recipe's `columns` that name these columns: each form names those that are given together."""
    section: str
    """The section of the recipe that says how it is encoded; a part of every stage's key."""
    has_tokens: bool
    """True if records differ in length, in tokens."""
    window_batches: int
    """Batches that are encoded at a time to answer; texts are sorted by length within them."""
    window_rows: int = 2**14
    """Records that are read at a time, of those to train on."""

    @property
    def roles(self) -> tuple[str, ...]:
        """All fields of `columns` that apply."""
        return tuple(dict.fromkeys(role for form in self.forms for role in form))

    def column_kind(self, role: str) -> Kind:
        if self.kind != "language":
            return self.kind
        return "messages" if role == "messages" else "text"


@dataclass(frozen=True, kw_only=True)
class Target(ABC):
    """Target of a task: reads labels, trains on them, turns logits into answers, and measures answers."""

    column: Kind | None
    """Kind of the label column; None if the target is made of the inputs alone, and no label is read."""
    wanted: str
    """Noun for a cell of the label column, for messages: "a label"."""
    scored_by: tuple[str, ...]
    """Measures by which stages and recipes are chosen: the first that there is."""
    has_labels: bool = True
    """True if answers come from a set of labels, which the recipe declares."""
    one_label: bool = False
    """True if every record has exactly one of these labels, as groups by label and a confusion matrix need."""
    ordered: bool = False
    """True if targets depend on the order of the labels: the recipe declares it, and cannot infer it."""
    softmax_over_labels: bool = False
    """True if targets are label indices, and outputs one a label, as class prototypes and weights of labels need."""
    over_vocabulary: bool = False
    """True if the base model's own output layer answers, over its vocabulary: no head is drawn or trained. Each answer
    is then the log-probability of the token that follows, C = 1."""
    has_threshold: bool = False
    """True if answers depend on the declared threshold."""
    answer: str = "label"
    """The name of an answer in documents and tables."""
    verbs: tuple[str, ...] = ("predict",)
    """Methods of a run that ask for answers of this target; the others are refused."""

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> Any:
        """The label as records keep it; None where the cell holds none. Several labels come as a list."""
        return label_of(cell)

    def expected(self, rows: pa.Table) -> list[Any]:
        return list(rows["label"].to_pylist())

    def labels_in(self, label: Any) -> Sequence[str]:
        """The labels of the set that a record's label is made of."""
        if not self.has_labels:
            return ()
        return (label,) if self.one_label else [one for one in label if one is not None]

    def outputs(self, labels: Sequence[str]) -> int:
        """C, for a label set: L; without labels 1."""
        return len(labels) if self.has_labels else 1

    @abstractmethod
    def targets(
        self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]
    ) -> Sequence[Tensor] | Tensor:
        """Training targets of each record, by its number: one row for each of its answers. If each record has one
        answer, one tensor N x 1, or N x 1 x C where an answer has a target for each output. Batches pass their rows to
        `loss`. `records` are the rows, encoded; `labels` are in the recipe's order (with `labels: infer`, sorted).
        """

    def weighted(
        self, declared: Literal["balanced"] | Mapping[str, float], labels: Sequence[str], targets_U: Tensor
    ) -> Target:
        """The target whose loss has declared weights of labels, 1 for others; balanced: N / (C x count) of each label
        among these targets. Only of a softmax over labels."""
        raise NotImplementedError

    @abstractmethod
    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        """The mean loss of a batch's U answers, in float32 whatever the logits are; steps add up such means by U."""

    @abstractmethod
    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        """Each answer, perhaps not the likeliest label, and the probability of each label, U x L; None where there
        are none. There is at least one member; `aggregate` says how they are combined. Where a record may have several
        labels, those of at least the probability `threshold` are given.
        """

    @abstractmethod
    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Measures of the answers, by name: numbers, or None where undefined."""

    def score(self, metrics: Mapping[str, Any]) -> float:
        """The measure that chooses among stages and recipes; higher is better, so an error is negative."""
        name = next(name for name in self.scored_by if name in metrics)
        if name not in LOWER_IS_BETTER:
            return float(metrics[name])
        return -math.inf if metrics[name] is None else -float(metrics[name])

    def guesses(self, expected: Sequence[Any]) -> list[list[Any]]:
        """The same answer to every input, for some answers: each of the most frequent labels, or the mean."""
        if not self.has_labels:
            return [] if self.over_vocabulary else [[sum(expected) / len(expected)] * len(expected)]
        often = Counter(label for answer in expected for label in self.labels_in(answer)).most_common(GUESSES)
        if self.one_label:
            return [[label] * len(expected) for label, _ in often]
        words = self.answer == "tags"
        return [[(label,) * (len(answer) if words else 1) for answer in expected] for label, _ in often]

    def report(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> Report:
        """Measures of each label; none where there are no labels."""
        return (), None


@dataclass(frozen=True, kw_only=True)
class Task:
    """Task that a recipe names."""

    name: str
    inputs: Inputs
    target: Target
    model: str
    """The class of transformers that loads a base model with a head for it."""

    def __str__(self) -> str:
        return self.name

    @property
    def pools(self) -> bool:
        """True if the token states of a text become one vector, which the head reads."""
        return self.model == "AutoModelForSequenceClassification"

    def check_answers(self, verb: str, *, where: str | None = None) -> None:
        """Refuse what the task's target does not answer; `where` is the question's name for messages."""
        if verb not in self.target.verbs:
            remedy = " or ".join(f"`{other}`" for other in self.target.verbs)
            raise InputError(where or verb, f"the run is of {self}, which does not {verb}; ask {remedy}")
