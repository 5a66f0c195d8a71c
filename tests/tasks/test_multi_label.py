"""Several labels a record: how they are read, learned, answered and judged."""

import json

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import classification_report

from s3t.errors import DataError
from s3t.prediction.answers import Answers
from s3t.recipe import Prediction, recipe_from
from s3t.records.ingest import ingest
from s3t.tasks.targets import MultiLabel
from testing import tiny
from tests.cli.typed import document, problems
from tests.run.worlds import trained_run

TASK = "text-multi-label-classification"
TABLE = tiny.with_several_labels(tiny.text_table())


def recipe(**changes):
    content = {"task": TASK, "base_model": "m", "columns": {"id": "id", "text": "text"}, "labels": ["a", "b", "c"]}
    for name, value in changes.items():
        content[name] = content[name] | value if name == "columns" else value
    return recipe_from(content)


def labels_of(label, **changes):
    table = pd.DataFrame({"id": ["x", "y"], "text": ["t", "u"], "label": label})
    return ingest(table, recipe(**changes)).rows["label"].to_pylist()


def test_labels_are_a_set_whatever_their_order():
    assert labels_of([["b", "a", "b"], []]) == [["a", "b"], []]
    assert labels_of([[1], [0, 1]], labels={0: "no", 1: "yes"}) == [["yes"], ["no", "yes"]]
    assert labels_of([[1.0, 0.0], [True]], labels={0: "no", 1: "yes"}) == [["no", "yes"], ["yes"]]


def test_a_declared_delimiter_cuts_text_into_labels(tmp_path):
    given = recipe(columns={"delimiter": ";"})
    path = tmp_path / "data.csv"
    path.write_text("id,text,label\nx,t,b; a\ny,u,\n")
    assert ingest(path, given).rows["label"].to_pylist() == [["a", "b"], []]
    assert labels_of([["a"], ["b"]], columns={"delimiter": ";"}) == [["a"], ["b"]]
    with pytest.raises(DataError, match="a list of labels"):
        ingest(path, recipe())


@pytest.mark.parametrize(
    ("label", "reason"),
    [
        ([["a"], None], "line|row|a list of labels"),
        ([["a"], ["d"]], "outside the declared labels"),
        ([["a"], [None]], "a list of labels"),
        ([1.5, 2.5], "labels are lists"),
    ],
)
def test_cells_that_hold_no_labels_are_refused(label, reason):
    with pytest.raises(DataError, match=reason):
        labels_of(label)


def test_labels_of_the_hub_are_read_by_name():
    text, labels = datasets.Value("string"), datasets.Sequence(datasets.ClassLabel(names=["b", "a"]))
    features = datasets.Features({"id": text, "text": text, "label": labels})
    rows = datasets.Dataset.from_dict({"id": ["x", "y"], "text": ["t", "u"], "label": [[0, 1], []]}, features=features)
    assert ingest(rows, recipe()).rows["label"].to_pylist() == [["a", "b"], []]


def test_inferred_labels_are_those_of_all_lists():
    assert ingest(TABLE, recipe(labels="infer")).labels == ("a", "b", "c")


@pytest.mark.parametrize(("aggregation", "first"), [("logits", 0.119), ("probabilities", 0.35), ("vote", 1 / 3)])
def test_members_answer_together_and_the_threshold_decides(aggregation, first):
    logits = np.array([[[3.0, 1.0]], [[-4.0, 1.0]], [[-5.0, 1.0]]])
    answers = Answers(target=MultiLabel(), labels=("a", "b"), settings=Prediction(aggregation=aggregation))
    found, probabilities = answers.answer(logits, [0, 1, 2])
    assert found == (("b",),)
    assert probabilities[0, 0] == pytest.approx(first, abs=0.03)
    low = Answers(target=MultiLabel(), labels=("a", "b"), settings=Prediction(aggregation=aggregation, threshold=0.1))
    assert low.answer(logits, [0, 1, 2])[0] == ((("b",) if aggregation == "vote" else ("a", "b")),)


def test_a_tied_vote_goes_by_the_mean_probability():
    answers = Answers(target=MultiLabel(), labels=("a", "b"), settings=Prediction(aggregation="vote"))
    assert answers.answer(np.array([[[9.0, 0.1]], [[-1.0, -9.0]]]), [0, 1])[0] == (("a",),)


def test_metrics_are_micro_and_macro_f1_and_the_share_that_is_all_right():
    target, labels = MultiLabel(), ("a", "b", "c")
    found = target.metrics([("a",), ("a", "b"), ()], [["a"], ["b"], []], labels)
    assert found == {
        "micro_f1": pytest.approx(0.8),
        "macro_f1": pytest.approx((2 / 3 + 1 + 0) / 3),
        "accuracy": pytest.approx(2 / 3),
    }


def test_the_loss_is_binary_cross_entropy_in_float32():
    rows = ingest(TABLE, recipe()).rows.slice(0, 2)
    targets = MultiLabel().targets(rows, [], ("a", "b", "c"))
    assert targets.tolist() == [[[0.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]]]
    loss = MultiLabel().loss(torch.zeros(2, 3, dtype=torch.bfloat16), torch.cat([targets[0], targets[1]]))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(np.log(2))


@pytest.mark.integration
def test_documents_have_lists_of_labels(text_model, tmp_path):
    content = tiny.recipe(text_model, task=TASK, training={"epochs": 12}, prediction={"threshold": 0.4})
    run = trained_run(tmp_path / "run", content | {"sequences": {"budget": 1}}, TABLE)
    answers = run.predict(TABLE)
    assert any(answers.predicted)
    assert run.evaluate(TABLE).confusion is None
    frame = answers.to_pandas()
    assert frame["labels"].tolist() == list(answers.predicted)
    assert "probability" not in frame
    TABLE.to_parquet(tmp_path / "data.parquet")
    predictions = document("predict", run.path, "--input", tmp_path / "data.parquet")["predictions"]
    assert [tuple(row["labels"]) for row in predictions] == list(answers.predicted)
    for row in predictions:
        assert row["labels"] == [name for name, value in row["probabilities"].items() if value >= 0.4]
    top = document("predict", run.path, "--input", tmp_path / "data.parquet", "--top", 1)["predictions"]
    assert all(len(row["probabilities"]) == 1 for row in top)
    document("predict", run.path, "--input", tmp_path / "data.parquet", "--output", tmp_path / "out.csv")
    written = pd.read_csv(tmp_path / "out.csv")["labels"]
    assert [tuple(json.loads(cell)) for cell in written] == list(answers.predicted)
    found = document("evaluate", run.path, "--data", tmp_path / "data.parquet", "--report")
    expected = classification_report(
        *[[[int(name in each) for name in "abc"] for each in side] for side in (TABLE.label, answers.predicted)],
        target_names=list("abc"),
        output_dict=True,
        zero_division=0.0,
    )
    assert found["micro_f1"] == pytest.approx(expected["micro avg"]["f1-score"])
    for row in (*found["per_class"], *found["means"]):
        assert row["f1"] == pytest.approx(expected[row["label"]]["f1-score"])
        assert row["support"] == expected[row["label"]]["support"]
    told = problems("evaluate", run.path, "--data", tmp_path / "data.parquet", "--confusion", tmp_path / "out.png")
    assert "no label stands for another" in " ".join(told)
