"""Token classification: each word of a record has a tag. A word's first sub-word carries it; the others are ignored."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s3t.tasks.aggregate import Scores, Weights, aggregate, choose
from s3t.tasks.task import Kind, Target

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor


Tags: TypeAlias = Sequence[str | None]
"""Tags of one record's words; None counts as O."""


def name_entities(labels: Sequence[str]) -> bool:
    """True if the tags mark entities: O, and others that begin with B-, I-, E- or S-.

    >>> name_entities(["O", "B-person", "I-person"]), name_entities(["NOUN", "VERB"])
    (True, False)
    """
    return all(re.fullmatch(r"O|[BIES]-.+", label) for label in labels)


def entities(tags: Tags) -> Iterator[tuple[str, int, int]]:
    """Type, first and last word of each entity, as CoNLL counts (conlleval; Tjong Kim Sang and De Meulder 2003).

    The rules are those of seqeval's default mode: any of IOB1, IOB2, IOE and IOBES is read, and an I- that continues
    nothing begins an entity. An entity is right if its type, its first and its last word are.

    >>> list(entities(["B-a", "I-a", "I-b", "O", "I-a", "B-a"]))
    [('a', 0, 1), ('b', 2, 2), ('a', 4, 4), ('a', 5, 5)]
    """
    before, kind_before, first = "O", "", 0
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, kind = (tag or "O").partition("-")
        parted = before in "ES" or prefix in "BS" or kind != kind_before
        if before != "O" and (parted or prefix == "O"):
            yield kind_before, first, place - 1
        if prefix != "O" and (parted or before == "O"):
            first = place
        before, kind_before = prefix, kind


def entity_metrics(predicted: Sequence[Tags], expected: Sequence[Tags]) -> dict[str, float]:
    """F1, precision and recall over all entities; 0 where there are none.

    >>> entity_metrics([["B-a", "O"], ["B-b", "O"]], [["B-a", "O"], ["B-b", "I-b"]])["f1"]
    0.5
    """
    measured = _measured(_all(predicted), _all(expected))
    return {name: measured[name] for name in ("f1", "precision", "recall")}


def entity_report(predicted: Sequence[Tags], expected: Sequence[Tags]) -> tuple[dict[str, Any], ...]:
    """Precision, recall, F1 and support of each type that either side has, by name."""
    given, right = _all(predicted), _all(expected)
    kinds = sorted({entity[1] for entity in given | right})
    return tuple(
        {"label": kind, **_measured(*({entity for entity in side if entity[1] == kind} for side in (given, right)))}
        for kind in kinds
    )


_Entities: TypeAlias = "set[tuple[int, str, int, int]]"


def _all(records: Sequence[Tags]) -> _Entities:
    return {(number, *entity) for number, tags in enumerate(records) for entity in entities(tags)}


def _measured(given: _Entities, right: _Entities) -> dict[str, Any]:
    both = len(given & right)
    return {
        "precision": both / len(given) if given else 0.0,
        "recall": both / len(right) if right else 0.0,
        "f1": 2 * both / (len(given) + len(right)) if given or right else 0.0,
        "support": len(right),
    }


WORDS = "words"
"""Entry of an encoded record: indices of the words that the model answers, those with a sub-word within its length."""


@dataclass(frozen=True, kw_only=True)
class TokenClassification(Target):
    """Target with a tag a word: softmax and cross-entropy over the words that the model sees."""

    column: Kind | None = "categories"
    wanted: str = "a list of tags, nor text that columns.delimiter cuts into tags"
    has_labels: bool = True
    answer: str = "tags"

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> tuple[str | None, ...] | None:
        """The tags that the cell means, in its order."""
        tags = None if cell is None else tuple(label_of(value) for value in cell)
        return None if tags is None or None in tags else tags

    def labels_in(self, label: Any) -> Iterable[str]:
        """The tags of the words that have one."""
        return [tag for tag in label if tag is not None]

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Sequence[Tensor]:
        """The index of the tag of each word that the model answers, int64."""
        import torch

        index = {label: number for number, label in enumerate(labels)}
        return [
            torch.tensor([index[tags[word]] for word in record[WORDS]], dtype=torch.int64)
            for tags, record in zip(self.expected(rows), records, strict=True)
        ]

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        """Cross-entropy, the mean over words; 0 for a batch in which no word has a sub-word."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits_UC.float(), targets_U, reduction="sum") / max(1, len(targets_U))

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        """The likeliest tag of each word; None for words that the model does not see, whose logits are no numbers."""
        seen = np.asarray(~np.isnan(logits_MUC).any(axis=(0, 2)))
        probabilities = np.full(logits_MUC.shape[1:], np.nan)
        probabilities[seen] = aggregate(logits_MUC[:, seen], aggregation, weights_M=weights_M)
        tags: list[str | None] = [None] * len(seen)
        indices = choose(probabilities[seen], logits_MUC[:, seen], weights_M=weights_M)
        for place, index in zip(np.flatnonzero(seen), indices, strict=True):
            tags[place] = labels[index]
        return tags, probabilities

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """F1, precision and recall of entities, where tags name some; accuracy over all words. None counts as O."""
        pairs = zip(itertools.chain(*answers), itertools.chain(*expected), strict=True)
        entities = entity_metrics(answers, expected) if name_entities(labels) else {}
        return {**entities, "accuracy": float(np.mean([(tag or "O") == right for tag, right in pairs]))}

    def score(self, metrics: Mapping[str, Any]) -> float:
        """F1 of entities, else accuracy."""
        return float(metrics.get("f1", metrics["accuracy"]))

    def report(
        self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]
    ) -> tuple[tuple[dict[str, Any], ...], NDArray[np.int64] | None]:
        """Measures of each type of entity."""
        return entity_report(answers, expected) if name_entities(labels) else (), None
