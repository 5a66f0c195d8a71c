"""Laws of every task: what holds of a target's members together, whatever the task is.

A law that fails names the members that do not fit each other; `tasks/task.py` says what each promises.
"""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

from s3t.errors import InputError, RecipeError
from s3t.prediction.answers import Answers
from s3t.recipe import Prediction, recipe_from
from s3t.tasks import TASKS
from s3t.tasks.targets import WORDS
from s3t.tasks.task import ANSWERED
from tests.same_bytes.recipes import RECIPES

AGGREGATIONS = ["logits", "probabilities", "vote"]
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
DOCUMENTED = set(re.findall(r"[\"`](\w+)[\"`]", PAGE.partition("\n### s3t evaluate")[2].partition("\n### ")[0]))
"""Names in what docs/cli.md says of `s3t evaluate`."""
LABELS = ["a", "b", "c"]
VOCABULARY = 9
CELLS = {
    "category": ["a", "b", "c", "a"],
    "number": [0.5, -1.0, 2.0, 0.0],
    "categories": [["a"], [], ["a", "c"], ["b"]],
}
KINDS = {"text": "text-classification", "image": "image-classification", "language": "causal-lm"}
"""Task of a recipe of a kind that names none."""
TAGS = [["a", "b"], ["c"], ["b", "b", "a"], ["a"]]


def each_task(test):
    return pytest.mark.parametrize("task", TASKS.values(), ids=str)(test)


def each_answering_task(test):
    """All but language models, whose logits are probabilities of the right tokens already."""
    tasks = [task for task in TASKS.values() if not task.target.over_vocabulary]
    return pytest.mark.parametrize("task", tasks, ids=str)(test)


def tokens(count):
    """Some tokens, of which the second and the last are learned."""
    return {"input_ids": torch.arange(count + 3), ANSWERED: torch.tensor([True, *[False] * count, True, False])}


def sample(task):
    """A label set, four rows, and the same encoded as far as targets look at them."""
    cells = TAGS if task.inputs.kind == "words" else CELLS.get(task.target.column, [None] * 4)
    records = [{WORDS: torch.arange(len(tags)), **tokens(len(tags))} for tags in TAGS]
    return LABELS if task.target.has_labels else [], pa.table({"label": cells}), records


@each_task
def test_no_target_depends_on_another_record(task):
    labels, rows, records = sample(task)
    targets = task.target.targets(rows, records, labels)
    assert len(targets) == rows.num_rows
    for number in range(rows.num_rows):
        alone = task.target.targets(rows.slice(number, 1), records[number : number + 1], labels)[0]
        assert torch.equal(alone, targets[number])


def batch_of(task):
    """A label set, the rows, the targets of all records as one batch, and their numbers of answers."""
    labels, rows, records = sample(task)
    targets = task.target.targets(rows, records, labels)
    return labels, rows, torch.cat(list(targets)), [len(each) for each in targets]


@each_task
def test_the_loss_of_a_batch_is_the_mean_over_its_answers(task):
    """Passes of a step add up so, and no answer's loss depends on another's."""
    labels, _, batch, _ = batch_of(task)
    outputs = VOCABULARY if task.target.over_vocabulary else task.target.outputs(labels)
    logits = torch.randn(len(batch), outputs, generator=torch.Generator().manual_seed(0)).requires_grad_()
    each = [task.target.loss(logits[number : number + 1], batch[number : number + 1]) for number in range(len(batch))]
    whole = task.target.loss(logits, batch)
    assert whole.item() == pytest.approx(torch.stack(each).mean().item(), rel=1e-5)
    assert torch.autograd.grad(whole, logits)[0].isfinite().all()
    assert task.target.loss(logits.bfloat16(), batch).dtype == torch.float32


def answers_of(task, labels, logits, counts, aggregation):
    """Answers of each record to logits of its answers, M x U x C."""
    settings = Answers(target=task.target, labels=tuple(labels), settings=Prediction(aggregation=aggregation))
    several = counts if task.inputs.kind == "words" else None
    return settings.answer(logits, range(len(logits)), counts=several)


@each_answering_task
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_answers_are_labels_with_a_probability_for_each_label(task, aggregation):
    labels, rows, batch, counts = batch_of(task)
    logits = np.random.default_rng(0).normal(size=(2, len(batch), task.target.outputs(labels)))
    answers, probabilities = answers_of(task, labels, logits, counts, aggregation)
    assert len(answers) == rows.num_rows
    assert {label for answer in answers for label in task.target.labels_in(answer)} <= set(labels)
    assert (probabilities is None) == (not task.target.has_labels)
    if probabilities is not None:
        assert probabilities.shape == (len(batch), len(labels))
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
        assert not task.target.one_label or np.allclose(probabilities.sum(axis=1), 1)


@each_answering_task
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_members_that_agree_answer_as_one_of_them_would_whatever_their_order(task, aggregation):
    labels, _, batch, counts = batch_of(task)
    logits = np.random.default_rng(0).normal(size=(3, len(batch), task.target.outputs(labels)))
    alone = answers_of(task, labels, logits[:1], counts, aggregation)[0]
    agreed = answers_of(task, labels, logits[[0, 0, 0]], counts, aggregation)[0]
    assert plain(agreed) == plain(alone)
    mixed, turned = (answers_of(task, labels, each, counts, aggregation)[0] for each in (logits, logits[::-1]))
    assert plain(mixed) == plain(turned)


def plain(answers):
    """Answers to compare: a number nearly, a list of labels as a tuple."""
    return [
        pytest.approx(each, abs=0.01) if isinstance(each, float) else tuple(each) if isinstance(each, list) else each
        for each in answers
    ]


def learned(task):
    """A label set, the right answers, and logits that the loss has led to them, with the numbers of their answers."""
    labels, rows, batch, counts = batch_of(task)
    logits = torch.zeros(len(batch), task.target.outputs(labels), requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=0.1)
    for _ in range(200):
        optimiser.zero_grad()
        task.target.loss(logits, batch).backward()
        optimiser.step()
    return labels, task.target.expected(rows), logits.detach().double().numpy(), counts


@each_answering_task
def test_what_is_learned_gives_the_right_answers_and_the_best_score_in_measures_that_the_docs_name(task):
    labels, expected, logits, counts = learned(task)
    for aggregation in AGGREGATIONS:
        assert plain(answers_of(task, labels, logits[None], counts, aggregation)[0]) == plain(expected)
    scores = []
    for each in (logits, -logits):
        answers = answers_of(task, labels, each[None], counts, "logits")[0]
        measures = task.target.metrics(answers, expected, labels)
        assert all(value is None or type(value) in (int, float) for value in measures.values())
        json.dumps(measures, allow_nan=False)
        assert measures.keys() <= DOCUMENTED, "name them in docs/cli.md, s3t evaluate"
        scores.append(task.target.score(measures))
        per_label, confusion = task.target.report(answers, expected, labels)
        assert all(row.keys() == {"label", "precision", "recall", "f1", "support"} for row in per_label)
        assert (confusion is None) == (not task.target.one_label)
    assert scores[0] > scores[1]


@each_task
def test_two_checkouts_are_compared_on_a_recipe_of_every_task(task):
    compared = [recipe.get("task", KINDS[recipe.get("kind", "text")]) for recipe in RECIPES.values()]
    assert task.name in compared, "enter a recipe of it in RECIPES, tests/same_bytes/recipes.py"


@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.target.softmax_over_labels], ids=str)
def test_a_task_with_prototypes_has_an_output_and_a_target_for_each_label(task):
    labels, rows, records = sample(task)
    assert task.target.one_label
    assert task.target.outputs(labels) == len(labels)
    assert task.target.targets(rows, records, labels).dtype == torch.int64


@each_task
def test_a_task_is_asked_what_its_target_answers_and_nothing_else(task):
    verbs = {"predict", "score", "generate"}
    assert verbs > set(task.target.verbs) > set()
    for verb in verbs:
        if verb in task.target.verbs:
            task.check_answers(verb)
        else:
            with pytest.raises(InputError, match=f"does not {verb}; ask `{task.target.verbs[0]}`"):
                task.check_answers(verb)


SEVERAL, ORDERED, TAGGED = "text-multi-label-classification", "text-ordinal-classification", "token-classification"
REFUSED = [
    ("text-classification", {"columns": {"delimiter": ";"}}, "columns.delimiter"),
    ("text-classification", {"prediction": {"threshold": 0.4}}, "prediction.threshold"),
    (SEVERAL, {"prediction": {"threshold": 1.0}}, "prediction.threshold"),
    (SEVERAL, {"method": "protosisa"}, "one label a record"),
    (SEVERAL, {"partition": {"group": {"column": "label", "slices": {"a": [0]}, "deletion": {"a": 1}}}}, "a column of"),
    (ORDERED, {"labels": "infer"}, "labels: .* have an order; declare them, the lowest first"),
    (ORDERED, {"prediction": {"threshold": 0.4}}, "prediction.threshold"),
    (ORDERED, {"method": "protosisa"}, "output for each label"),
    (TAGGED, {"columns": {"text": "{a} {b}"}}, "takes no template"),
    (TAGGED, {"columns": {"text_pair": "b"}}, "columns.text_pair"),
]


@pytest.mark.parametrize(("task", "changes", "reason"), REFUSED)
def test_recipes_that_cannot_be_meant_are_refused(task, changes, reason):
    columns = {"id": "id", "text": "text"} | changes.get("columns", {})
    with pytest.raises(RecipeError, match=reason):
        recipe_from({"task": task, "base_model": "m", "labels": LABELS} | changes | {"columns": columns})
