"""Answers and reports as a program and a person take them: reprs without records, frames, reports of classes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import classification_report, confusion_matrix

import s3t
from testing import tiny


@pytest.fixture(scope="module")
def opened(tmp_path_factory, text_model):
    folder = tmp_path_factory.mktemp("answers") / "run"
    recipe = tiny.recipe(text_model, columns={"subject": "person"}, training={"epochs": 1}, sequences={"budget": 1})
    with s3t.Run.create(folder, recipe=recipe, data=tiny.text_table(subjects=12)) as run:
        run.train()
        yield run


def test_a_repr_says_how_it_stands_and_nothing_of_a_record(opened):
    table = tiny.text_table()
    shown = {
        "run": repr(opened),
        "status": repr(opened.status()),
        "answer": repr(opened.predict(table)),
        "measured": repr(opened.evaluate(table)),
        "audited": repr(opened.audit()),
        "trained": repr(opened.train()),
        "planned": repr(opened.delete(records=["r3", "r999"], subjects=["p7"], dry_run=True)),
    }
    for text in shown.values():
        assert len(text.splitlines()) == 1
        assert len(text) < 300
        assert not {*table.id, *table.text, "r999", "p7"} & set(text.replace(",", " ").replace("'", " ").split())
    assert "2 shards, 3 slices, 3 labels" in shown["run"]
    assert shown["status"].startswith("Status(generation 0, 24 records, depths 3 3")
    assert shown["answer"].startswith("Predictions(generation 0, 24 inputs, 2 members: ")
    assert shown["measured"].startswith("Evaluation(accuracy 0.")
    assert shown["audited"] == "Audit(ok, generation 0, 6 stages checked, 0 replayed)"
    assert shown["trained"].startswith("Training(0 stages trained in 0.")
    assert shown["planned"].startswith("Deletion(3 records would be deleted, 0 gone already, 1 unknown, ")
    other = s3t.Run.open(opened.path)
    other.close()
    assert repr(other) == shown["run"]


def test_answers_become_a_frame_with_a_probability_for_each_label(opened):
    table = tiny.text_table()
    answer = opened.predict(table)
    frame = answer.to_pandas()
    assert list(frame) == ["id", "label", "probability", *(f"probability:{name}" for name in "abc"), "generation"]
    assert frame.id.tolist() == table.id.tolist()
    assert frame.label.tolist() == list(answer.predicted)
    assert np.array_equal(frame[[f"probability:{name}" for name in "abc"]].to_numpy(), answer.probabilities)
    assert all(row.probability == row[f"probability:{row.label}"] for _, row in frame.iterrows())
    bare = opened.predict(["w1", "w30"]).to_pandas()
    assert bare.row.tolist() == [0, 1]
    assert len(opened.predict(pd.DataFrame({"text": pd.Series([], dtype=str)})).to_pandas()) == 0


def test_an_evaluation_tells_of_records_that_are_cut(opened):
    table = tiny.text_table()
    assert not any("cut" in notice for notice in opened.evaluate(table).notices)
    table.loc[:2, "text"] = " ".join(["w1"] * 30)
    assert "3 of 24 records have more tokens than max_length and are cut there" in opened.evaluate(table).notices


def test_the_likeliest_labels_come_first(opened):
    answer = opened.predict(["w1 w2", "w30 w31"])
    for row, whole in zip(answer.rows(top=2), answer.rows(), strict=True):
        assert next(iter(row["probabilities"])) == row["label"] == whole["label"]
        assert len(row["probabilities"]) == 2
        left_out = min(whole["probabilities"].values())
        assert min(row["probabilities"].values()) >= left_out
        assert row["probabilities"].items() <= whole["probabilities"].items()


def test_the_report_of_classes_is_that_of_scikit_learn(opened):
    table = tiny.text_table()
    measured = opened.evaluate(table)
    predicted = opened.predict(table.drop(columns="label")).predicted
    asked = {"labels": list(measured.classes), "output_dict": True, "zero_division": 0.0}
    wanted = classification_report(table.label.tolist(), list(predicted), **asked)
    for row in (*measured.per_class, *measured.means):
        for name, key in (("precision",) * 2, ("recall",) * 2, ("f1", "f1-score"), ("support",) * 2):
            assert row[name] == pytest.approx(wanted[row["label"]][key])
    matrix = confusion_matrix(table.label.tolist(), list(predicted), labels=list(measured.classes))
    assert np.array_equal(measured.confusion, matrix)
    assert measured.accuracy == pytest.approx(np.trace(matrix) / len(table))
