"""Laws of every task: targets fit the loss, answers fit the labels, no record's target depends on another's."""

import numpy as np
import pyarrow as pa
import pytest
import torch

from s3t.errors import InputError
from s3t.run.run import Run
from s3t.tasks import TASKS
from s3t.tasks.task import ANSWERED
from s3t.tasks.token_classification import WORDS

LABELS = ["a", "b", "c"]
VOCABULARY = 9
CELLS = {
    "category": ["a", "b", "c", "a"],
    "number": [0.5, -1.0, 2.0, 0.0],
    "categories": [["a"], [], ["a", "c"], ["b"]],
}
TAGS = [["a", "b"], ["c"], ["b", "b", "a"], ["a"]]


def each_task(test):
    return pytest.mark.parametrize("task", TASKS.values(), ids=str)(test)


def tokens(count):
    """Some tokens, of which the second and the last are learned."""
    return {"input_ids": torch.arange(count + 3), ANSWERED: torch.tensor([True, *[False] * count, True, False])}


def sample(task):
    """A label set, four rows, and the same encoded as far as targets look at them."""
    cells = TAGS if task.inputs.kind == "words" else CELLS.get(task.target.column, [None] * 4)
    records = [{WORDS: torch.arange(len(tags)), **tokens(len(tags))} for tags in TAGS]
    return LABELS if task.target.has_labels else [], pa.table({"label": cells}), records


@each_task
def test_targets_fit_the_loss(task):
    labels, rows, records = sample(task)
    targets = task.target.targets(rows, records, labels)
    assert len(targets) == rows.num_rows
    batch = torch.cat([targets[number] for number in range(rows.num_rows)])
    outputs = VOCABULARY if task.target.over_vocabulary else task.target.outputs(labels)
    logits = torch.zeros(len(batch), outputs, requires_grad=True)
    task.target.loss(logits, batch).backward()
    assert logits.grad.isfinite().all()


@each_task
def test_no_target_depends_on_another_record(task):
    labels, rows, records = sample(task)
    targets = task.target.targets(rows, records, labels)
    for number in range(rows.num_rows):
        alone = task.target.targets(rows.slice(number, 1), records[number : number + 1], labels)[0]
        assert torch.equal(alone, targets[number])


@each_task
@pytest.mark.parametrize("aggregation", ["logits", "probabilities", "vote"])
def test_answers_are_labels_with_a_probability_for_each_label(task, aggregation):
    labels, rows, _ = sample(task)
    logits = np.random.default_rng(0).normal(size=(2, rows.num_rows, task.target.outputs(labels)))
    answers, probabilities = task.target.answers(logits, None, labels, aggregation=aggregation, threshold=0.5)
    assert len(answers) == rows.num_rows
    assert (probabilities is None) == (not task.target.has_labels)
    if probabilities is not None:
        assert probabilities.shape == (rows.num_rows, len(labels))
        assert ((probabilities >= 0) & (probabilities <= 1)).all()


@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.target.takes_prototypes], ids=str)
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
        assert hasattr(Run, verb)
        if verb in task.target.verbs:
            task.check_answers(verb)
        else:
            with pytest.raises(InputError, match=f"does not {verb}; ask `{task.target.verbs[0]}`"):
                task.check_answers(verb)
