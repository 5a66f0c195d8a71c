"""The targets, and the tasks that recipes name.

Shapes: as `task.py`; T = L - 1 thresholds of an ordinal task.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from s3t.errors import InputError
from s3t.extras import how_to_install
from s3t.tasks.aggregate import Scores, Weights, aggregate, choose, mean, sigmoid
from s3t.tasks.task import ANSWERED, Inputs, Kind, Report, Target, Task

if TYPE_CHECKING:
    import pyarrow as pa
    from torch import Tensor

WORDS = "words"
"""Entry of an encoded record: indices of the words that the model answers, those with a sub-word within its length."""
Tags: TypeAlias = Sequence[str | None]
"""Tags of one record's words; None counts as O."""


@dataclass(frozen=True, kw_only=True)
class _OneLabel(Target):
    """Target with one label a record, of a set."""

    column: Kind | None = "category"
    wanted: str = "a label"
    one_label: bool = True

    def report(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> Report:
        from sklearn.metrics import confusion_matrix

        given, right = indices_of(answers, labels), indices_of(expected, labels)
        numbers = range(len(labels))
        confusion = np.asarray(confusion_matrix(right, given, labels=numbers), dtype=np.int64)
        return _per_label(labels, right, given, labels=numbers), confusion


@dataclass(frozen=True, kw_only=True)
class Classification(_OneLabel):
    """Softmax and cross-entropy."""

    scored_by: tuple[str, ...] = ("accuracy",)
    softmax_over_labels: bool = True
    weights: tuple[float, ...] = ()
    """Weight of a record's loss by its label; empty: 1 each. A batch's loss is still a mean over records."""

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Tensor:
        import torch

        return torch.tensor(indices_of(self.expected(rows), labels), dtype=torch.int64)[:, None]

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        import torch
        from torch.nn.functional import cross_entropy

        if not self.weights:
            return cross_entropy(logits_UC.float(), targets_U)
        weights_C = torch.tensor(self.weights, device=logits_UC.device)
        return cross_entropy(logits_UC.float(), targets_U, weight=weights_C, reduction="sum") / len(targets_U)

    def weighted(
        self, declared: Literal["balanced"] | Mapping[str, float], labels: Sequence[str], targets_U: Tensor
    ) -> Target:
        if declared == "balanced":
            counts = targets_U.bincount(minlength=len(labels)).clamp(min=1)
            weights = (len(targets_U) / (len(labels) * counts.double())).tolist()
        else:
            weights = [float(declared.get(label, 1.0)) for label in labels]
        return replace(self, weights=tuple(weights))

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        probabilities = aggregate(logits_MUC, aggregation, weights_M=weights_M)
        indices = choose(probabilities, logits_MUC, weights_M=weights_M)
        return [labels[index] for index in indices], probabilities

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Accuracy, F1, and the Matthews correlation coefficient (0 where either side has one label alone). As in GLUE
        and SuperGLUE, F1 is that of the second of two labels (MRPC, QQP, MultiRC), and of more the mean (CB).
        """
        from sklearn.metrics import f1_score, matthews_corrcoef  # here: its import is slow

        given, right = indices_of(answers, labels), indices_of(expected, labels)
        each = f1_score(right, given, labels=range(len(labels)), average=None, zero_division=0.0)
        return {
            "accuracy": float(np.mean(np.asarray(given) == np.asarray(right))),
            "f1": float(each[1] if len(labels) == 2 else each.mean()),
            "matthews": float(matthews_corrcoef(right, given)) if len({*given, *right}) > 1 else 0.0,
        }


@dataclass(frozen=True, kw_only=True)
class Ordinal(_OneLabel):
    """One label a record, of a set in declared order, as ratings are: a sigmoid and binary cross-entropy a threshold.

    A label k of L is L - 1 binary answers, "above label 0", ..., "above label L - 2"; the label is the number of them
    that are likelier than not (Niu et al., "Ordinal Regression with Multiple Output CNN for Age Estimation", CVPR 2016,
    section 3). Each output has weights of its own, unlike in CORAL (doi:10.1016/j.patrec.2020.11.008), so probabilities
    may rise where they should fall. They are sorted before labels get theirs.
    """

    scored_by: tuple[str, ...] = ("mae",)
    ordered: bool = True

    def outputs(self, labels: Sequence[str]) -> int:
        return len(labels) - 1

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Tensor:
        """1 for each threshold that the label is above, else 0: float32, N x 1 x T."""
        import torch

        indices_N = torch.tensor(indices_of(self.expected(rows), labels), dtype=torch.int64)
        return (indices_N[:, None, None] > torch.arange(len(labels) - 1)).float()

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        """Binary cross-entropy: the sum over thresholds, the mean over records."""
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(logits_UC.float(), targets_U) * logits_UC.shape[1]

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        """The median label: as many steps up as there are thresholds that the record is likelier above than not.

        `logits`: sigmoids of the mean; `probabilities`: mean of the sigmoids; `vote`: the label of most members, each
        with its own median; a tied vote goes to the tied label with the highest mean probability.
        """
        each_MUT = sigmoid(logits_MUC)
        above_UT = sigmoid(mean(logits_MUC, weights_M)) if aggregation == "logits" else mean(each_MUT, weights_M)
        falling_UT = -np.sort(-above_UT, axis=-1)  # the probability of being above a threshold may only fall
        probabilities = -np.diff(falling_UT, axis=-1, prepend=1.0, append=0.0)
        indices = (above_UT > 0.5).sum(axis=-1)
        if aggregation == "vote":
            votes = mean(np.eye(len(labels))[(each_MUT > 0.5).sum(axis=-1)], weights_M)
            tied = votes >= votes.max(axis=-1, keepdims=True)
            probabilities, indices = votes, np.where(tied, probabilities, -1.0).argmax(axis=-1)
        return [labels[index] for index in indices], probabilities

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Accuracy, mean absolute error in label steps, and Cohen's kappa with quadratic weights, None where both sides
        have one label alone, and the same."""
        from sklearn.metrics import cohen_kappa_score

        given, right = np.asarray(indices_of(answers, labels)), np.asarray(indices_of(expected, labels))
        steps, kappa = np.abs(given - right), None
        if len({*given.tolist(), *right.tolist()}) > 1:
            kappa = float(cohen_kappa_score(right, given, labels=range(len(labels)), weights="quadratic"))
        return {"accuracy": float((steps == 0).mean()), "mae": float(steps.mean()), "quadratic_kappa": kappa}


@dataclass(frozen=True, kw_only=True)
class MultiLabel(Target):
    """Any number of labels a record, perhaps none: a sigmoid and binary cross-entropy each. The threshold is declared,
    never fitted."""

    column: Kind | None = "categories"
    wanted: str = "a list of labels, nor text that columns.delimiter cuts into labels"
    scored_by: tuple[str, ...] = ("micro_f1",)
    has_threshold: bool = True
    answer: str = "labels"

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> tuple[str, ...] | None:
        """The labels of the cell, sorted and without repetition."""
        labels = None if cell is None else {label_of(value) for value in cell}
        return None if labels is None or None in labels else tuple(sorted(filter(None, labels)))

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Tensor:
        """1 for each label that the record has, else 0: float32."""
        import torch

        return torch.from_numpy(_indicators(self.expected(rows), labels).astype(np.float32))[:, None]

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        from torch.nn.functional import binary_cross_entropy_with_logits

        return binary_cross_entropy_with_logits(logits_UC.float(), targets_U)

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        """The labels whose probability reaches the threshold.

        `logits`: sigmoid of the mean; `probabilities`: mean of the sigmoids; `vote`: the share of members in which the
        label reaches the threshold. More than half of them decide; at just half, the mean of the sigmoids does.
        """
        each = sigmoid(logits_MUC)
        if aggregation == "vote":
            probabilities = mean((each >= threshold).astype(np.float64), weights_M)
            assigned = (probabilities > 0.5) | ((probabilities == 0.5) & (mean(each, weights_M) >= threshold))
        else:
            probabilities = sigmoid(mean(logits_MUC, weights_M)) if aggregation == "logits" else mean(each, weights_M)
            assigned = probabilities >= threshold
        return [tuple(label for label, has in zip(labels, row, strict=True) if has) for row in assigned], probabilities

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Micro and macro F1 (0 for a label that neither side has), and the share of records that are all right."""
        from sklearn.metrics import f1_score

        given, right = _indicators(answers, labels), _indicators(expected, labels)
        return {
            "micro_f1": float(f1_score(right, given, average="micro", zero_division=0.0)),
            "macro_f1": float(f1_score(right, given, average="macro", zero_division=0.0)),
            "accuracy": float((given == right).all(axis=1).mean()),
        }

    def report(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> Report:
        """There is no confusion matrix, since labels do not exclude each other."""
        return _per_label(labels, _indicators(expected, labels), _indicators(answers, labels)), None


def _indicators(label_sets: Sequence[Sequence[str]], labels: Sequence[str]) -> NDArray[np.int64]:
    """Records x labels: 1 where the record has the label."""
    indicators = np.zeros((len(label_sets), len(labels)), dtype=np.int64)
    for row, names in enumerate(label_sets):
        indicators[row, indices_of(names, labels)] = 1
    return indicators


MOST_NUMBER = 1e15
"""The square of far larger ones is beyond float32."""


@dataclass(frozen=True, kw_only=True)
class Regression(Target):
    """A number a record: squared error. Members always answer with their mean."""

    column: Kind | None = "number"
    wanted: str = "a number between -1e15 and 1e15"
    scored_by: tuple[str, ...] = ("rmse",)
    has_labels: bool = False

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> float | None:
        if isinstance(cell, bool) or not isinstance(cell, str | int | float | Decimal):
            return None
        try:
            number = float(cell)
        except (ValueError, OverflowError):
            return None
        if not abs(number) <= MOST_NUMBER:
            return None
        return number + 0.0  # -0.0 is 0.0, so that equal numbers have equal bytes

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Tensor:
        import torch

        return torch.tensor(self.expected(rows), dtype=torch.float32)[:, None]

    def loss(self, logits_UC: Tensor, targets_U: Tensor) -> Tensor:
        from torch.nn.functional import mse_loss

        return mse_loss(logits_UC.float().squeeze(-1), targets_U)

    def answers(
        self, logits_MUC: Scores, weights_M: Weights, labels: Sequence[str], *, aggregation: str, threshold: float
    ) -> tuple[list[Any], Scores | None]:
        return mean(logits_MUC, weights_M)[:, 0].tolist(), None

    def metrics(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> dict[str, Any]:
        """Pearson correlation (None where either side is constant or a single number) and root mean squared error."""
        from scipy.stats import pearsonr

        given, right = np.asarray(answers, np.float64), np.asarray(expected, np.float64)
        varied = len(right) > 1 and np.ptp(given) > 0 and np.ptp(right) > 0
        return {
            "pearson": float(pearsonr(given, right).statistic) if varied else None,
            "rmse": float(np.sqrt(np.mean((given - right) ** 2))),
        }


@dataclass(frozen=True, kw_only=True)
class TokenClassification(Target):
    """A tag a word: softmax and cross-entropy over the words that the model sees, each by its first sub-word."""

    column: Kind | None = "categories"
    wanted: str = "a list of tags, nor text that columns.delimiter cuts into tags"
    scored_by: tuple[str, ...] = ("f1", "accuracy")
    answer: str = "tags"

    def parsed(self, cell: Any, label_of: Callable[[Any], str | None]) -> tuple[str | None, ...] | None:
        """The tags that the cell means, in its order."""
        tags = None if cell is None else tuple(label_of(value) for value in cell)
        return None if tags is None or None in tags else tags

    def targets(self, rows: pa.Table, records: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> Sequence[Tensor]:
        import torch

        return [
            torch.tensor(indices_of([tags[word] for word in record[WORDS]], labels), dtype=torch.int64)
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
        entities = _measured(_all(answers), _all(expected)) if _name_entities(labels) else {}
        measures = {name: entities[name] for name in ("f1", "precision", "recall") if entities}
        return measures | {"accuracy": float(np.mean([(tag or "O") == right for tag, right in pairs]))}

    def report(self, answers: Sequence[Any], expected: Sequence[Any], labels: Sequence[str]) -> Report:
        """Measures of each type of entity that either side has, by name."""
        given, right = (_all(side) if _name_entities(labels) else set() for side in (answers, expected))
        rows = []
        for kind in sorted({entity[1] for entity in given | right}):
            of_kind = ({entity for entity in side if entity[1] == kind} for side in (given, right))
            rows.append({"label": kind, **_measured(*of_kind)})
        return tuple(rows), None


def _name_entities(labels: Sequence[str]) -> bool:
    """True if the tags mark entities: O, and others that begin with B-, I-, E- or S-.

    >>> _name_entities(["O", "B-person", "I-person"]), _name_entities(["NOUN", "VERB"])
    (True, False)
    """
    return all(re.fullmatch(r"O|[BIES]-.+", label) for label in labels)


def entities(tags: Tags) -> Iterator[tuple[str, int, int]]:
    """Type, first and last word of each entity, as CoNLL counts (conlleval; Tjong Kim Sang and De Meulder 2003), and
    seqeval in its default mode: any of IOB1, IOB2, IOE and IOBES, and an I- that continues nothing begins an entity.

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


@dataclass(frozen=True, kw_only=True)
class CausalLanguage(Target):
    """Each token is predicted from those before it: softmax over the vocabulary and cross-entropy. The ensemble answers
    with log-probabilities of the right tokens under the mean of the members' probabilities, whatever
    `prediction.aggregation` says: the other ways need every member's whole vocabulary.
    """

    column: Kind | None = None
    wanted: str = "nothing"
    scored_by: tuple[str, ...] = ("loss",)
    has_labels: bool = False
    over_vocabulary: bool = True
    answer: str = "log_probabilities"
    verbs: tuple[str, ...] = ("generate", "score")

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


def rouge_scorer() -> Any:
    """A scorer of ROUGE-L (Lin 2004), stemmed."""
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        problem = "texts are compared by rouge-score, which is not installed"
        raise InputError("evaluate", f"{problem}; install it with: {how_to_install('texts')}") from None
    return RougeScorer(["rougeL"], use_stemmer=True)


def text_metrics(written: Sequence[str], expected: Sequence[str]) -> dict[str, float]:
    """Means over texts: share that are equal but for white space at their ends; F1 and recall of ROUGE-L, stemmed."""
    scorer = rouge_scorer()
    scores = [scorer.score(right, text)["rougeL"] for text, right in zip(written, expected, strict=True)]
    equal = [text.strip() == right.strip() for text, right in zip(written, expected, strict=True)]
    return {
        "exact_match": sum(equal) / len(equal),
        "rouge_l": sum(score.fmeasure for score in scores) / len(scores),
        "rouge_l_recall": sum(score.recall for score in scores) / len(scores),
    }


def indices_of(names: Iterable[str | None], labels: Sequence[str]) -> list[int]:
    index: dict[str | None, int] = {label: number for number, label in enumerate(labels)}
    return [index[name] for name in names]


def _per_label(names: Sequence[str], right: Any, given: Any, **options: Any) -> tuple[dict[str, Any], ...]:
    """Precision, recall, F1 and support of each label; one that neither side has has 0 of everything."""
    from sklearn.metrics import precision_recall_fscore_support

    measures = precision_recall_fscore_support(right, given, average=None, zero_division=0.0, **options)
    columns = {"precision": float, "recall": float, "f1": float, "support": int}
    return tuple(
        {"label": name} | {column: kind(value) for (column, kind), value in zip(columns.items(), values, strict=True)}
        for name, *values in zip(names, *measures, strict=True)
    )


TEXT = Inputs(kind="text", forms=(("text",), ("text", "text_pair")), section="text", has_tokens=True, window_batches=64)
"""A text, or a pair of texts."""

TAGGED = Inputs(kind="words", forms=(("text",),), section="text", has_tokens=True, window_batches=64)
"""A text that is cut into words, each of which is answered."""

IMAGE = Inputs(kind="image", forms=(("image",),), section="image", has_tokens=False, window_batches=1, window_rows=256)
"""An image. All are of one size, and take thousands of times the memory of texts: one decoded batch at a time."""

LANGUAGE = Inputs(
    kind="language",
    forms=(("prompt", "completion"), ("messages",), ("text",)),
    section="language",
    has_tokens=True,
    window_batches=16,
)
"""A prompt and its completion, a chat, or a text, of which a model learns to write the next token."""

_SEQUENCE, _IMAGE = "AutoModelForSequenceClassification", "AutoModelForImageClassification"
_WORDS = "AutoModelForTokenClassification"

TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (
        Task(name="text-classification", inputs=TEXT, target=Classification(), model=_SEQUENCE),
        Task(name="text-ordinal-classification", inputs=TEXT, target=Ordinal(), model=_SEQUENCE),
        Task(name="text-regression", inputs=TEXT, target=Regression(), model=_SEQUENCE),
        Task(name="text-multi-label-classification", inputs=TEXT, target=MultiLabel(), model=_SEQUENCE),
        Task(name="token-classification", inputs=TAGGED, target=TokenClassification(), model=_WORDS),
        Task(name="causal-lm", inputs=LANGUAGE, target=CausalLanguage(), model="AutoModelForCausalLM"),
        Task(name="image-classification", inputs=IMAGE, target=Classification(), model=_IMAGE),
        Task(name="image-multi-label-classification", inputs=IMAGE, target=MultiLabel(), model=_IMAGE),
    )
}
"""Tasks by name."""


def task_named(name: object) -> Task:
    """The task of a name; a task is returned unchanged."""
    if isinstance(name, Task):
        return name
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"no such task; use {', '.join(TASKS)}")
    return TASKS[name]
