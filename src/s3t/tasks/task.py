"""What a task is: inputs and a target. Other rooms ask these, and know of no task by its name.

torch, pyarrow and scikit-learn are imported by the functions that compute: recipes are read without them.

Shapes: M members; U answers, one a record where `Inputs` says no other; C outputs of the head.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from numpy.typing import NDArray

from s3t.tasks.aggregate import Scores

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from torch import Tensor

Kind: TypeAlias = Literal["name", "category", "number", "categories", "text", "words", "image"]
"""What a column holds: ids or subjects; labels or groups; a regression's labels; lists of labels; texts;
lists of words; images."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What goes into a model."""

    kind: Kind
    """Of the columns that it is read from; it also decides which encoder there is."""
    roles: tuple[str, ...]
    """The fields of the recipe's `columns` that name these columns. The first is needed."""
    section: str
    """The section of the recipe that says how it is encoded; a part of every stage's key."""
    has_tokens: bool
    """Whether records are of different lengths, in tokens."""
    window_batches: int
    """Batches that are encoded at a time to answer; texts are sorted by length within them."""

    def counts(self, rows: pa.Table) -> list[int] | None:
        """How many answers each record has: one a word; None: one each."""
        return [len(words) for words in rows[self.roles[0]].to_pylist()] if self.kind == "words" else None

    def column_problems(self, columns: Collection[str], others: Iterable[str], task: str) -> list[str]:
        """What is missing in the recipe's `columns`, and what has no place there.

        Args:
            columns: the roles that are given.
            others: the roles of all inputs there are.
            task: its name, for messages.
        """
        first = self.roles[0]
        problems = [] if first in columns else [f"task {task} needs columns.{first}, the column of the {first}"]
        stray = [role for role in dict.fromkeys(others) if role in columns and role not in self.roles]
        return problems + [f"columns.{role} has no place in task {task}" for role in stray]


class Target(Protocol):
    """What comes out of a model: how a label is read, learned, answered and judged."""

    @property
    def column(self) -> Kind:
        """What the label's column holds."""
        ...

    @property
    def wanted(self) -> str:
        """What a cell of it has to be: "a label"."""
        ...

    @property
    def has_labels(self) -> bool:
        """Whether answers are taken from a set of labels, which the recipe declares."""
        ...

    @property
    def one_label(self) -> bool:
        """Whether every record has one of these labels: what prototypes, and groups by label, need."""
        ...

    @property
    def has_threshold(self) -> bool:
        """Whether an answer depends on the declared threshold."""
        ...

    @property
    def answer(self) -> str:
        """The name of an answer in documents and tables."""
        ...

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> Any:
        """The label as records keep it; None where the cell holds none.

        Args:
            cell: of the label's column; a list where it holds several labels.
            label_of: the label that a value means, by the recipe.
        """
        ...

    def labels_in(self, label: Any) -> Iterable[str]:
        """The labels of the set that a record's label is made of."""
        ...

    def outputs(self, labels: Sequence[str]) -> int:
        """C, for a label set."""
        ...

    def targets(
        self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]
    ) -> Sequence[Tensor] | Tensor:
        """What a stage learns of each record: under its number, one row for each of its answers.

        Args:
            rows: the records, as ingested.
            records: the same, encoded; perhaps as they are asked for.
            labels: in the head's order.
        """
        ...

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:  # noqa: N803
        """The mean loss of a batch, in float32 whatever the logits are."""
        ...

    def answers(
        self,
        logits_MUC: Scores,  # noqa: N803
        weights_M: NDArray[np.float64] | None,  # noqa: N803
        labels: Sequence[str],
        *,
        aggregation: str,
        threshold: float,
    ) -> tuple[list[Any], Scores | None]:
        """Each answer, and the probability of each label, U x C; None where there are no probabilities.

        Args:
            logits_MUC: of the members, at least one.
            weights_M: of the members, adding up to 1; None: all weigh alike.
            labels: in the head's order.
            aggregation: how members answer together (see `aggregate`).
            threshold: the probability from which on a label is given, where a record may have several.
        """
        ...

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """How good answers are, by the name of each measure."""
        ...

    def score(self, metrics: Mapping[str, Any]) -> float:
        """The measure that chooses among stages, the more the better."""
        ...

    def report(
        self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]
    ) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]:
        """Precision, recall, F1 and support of each label, and the confusion matrix, where there is one."""
        ...


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a recipe's `task` names."""

    name: str
    inputs: Inputs
    target: Target
    model: str
    """The class of transformers that loads a base model with a head for it."""

    def __str__(self) -> str:
        """Its name."""
        return self.name
