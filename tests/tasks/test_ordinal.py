"""Labels in an order: how they are learned, answered and judged."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.metrics import cohen_kappa_score, mean_absolute_error
from transformers import AutoModelForSequenceClassification

import s3t
from s3t.prediction.answers import Answers
from s3t.recipe import Prediction, recipe_from
from s3t.records.ingest import ingest
from s3t.tasks.targets import Ordinal
from testing import tiny
from tests.cli.typed import document
from tests.export.loaded import SMALL, assert_equal_logits
from tests.run.worlds import trained_run

TASK = "text-ordinal-classification"
TABLE = tiny.text_table()
RATINGS = ("bad", "fair", "good", "best")
LOGITS = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 6), st.just(len(RATINGS) - 1)),
    elements=st.floats(-50, 50, width=32),
)


def ensemble(aggregation="logits"):
    return Answers(target=Ordinal(), labels=RATINGS, settings=Prediction(aggregation=aggregation))


def test_targets_say_which_thresholds_a_label_is_above_in_the_declared_order():
    content = {"task": TASK, "base_model": "m", "columns": {"id": "id", "text": "text"}, "labels": ["c", "a", "b"]}
    given = recipe_from(content)
    rows = ingest(TABLE, given).rows
    targets = Ordinal().targets(rows, [], given.labels)
    for label, target in zip(rows["label"].to_pylist(), targets.tolist(), strict=True):
        assert target == [{"c": [0.0, 0.0], "a": [1.0, 0.0], "b": [1.0, 1.0]}[label]]


def test_the_loss_is_the_cross_entropy_of_all_thresholds_in_float32():
    logits, targets = torch.tensor([[0.3, -1.2], [2.0, 0.7]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    above = torch.sigmoid(logits)
    each = -(targets * above.log() + (1 - targets) * (1 - above).log()).sum(dim=1)
    assert Ordinal().loss(logits, targets).item() == pytest.approx(each.mean().item())
    loss = Ordinal().loss(torch.zeros(2, 2, dtype=torch.bfloat16), targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(2 * np.log(2))


@pytest.mark.parametrize("aggregation", ["logits", "probabilities", "vote"])
@given(logits=LOGITS)
def test_probabilities_of_labels_add_up_to_1_whatever_the_thresholds_say(aggregation, logits):
    probabilities = ensemble(aggregation).answer(logits, range(len(logits)))[1]
    assert (probabilities >= 0).all()
    assert np.allclose(probabilities.sum(axis=1), 1)


@given(logits=LOGITS)
def test_the_answer_is_the_median_label(logits):
    answers, probabilities = ensemble().answer(logits, range(len(logits)))
    for answer, row in zip(answers, probabilities, strict=True):
        index = RATINGS.index(answer)
        assert row[:index].sum() <= 0.5 + 1e-9
        assert row[index + 1 :].sum() <= 0.5 + 1e-9


def test_members_answer_together():
    low, sure = [-2.0, -3.0, -4.0], [9.0, 9.0, 9.0]
    for how, label in (("logits", "best"), ("probabilities", "bad"), ("vote", "bad")):
        assert ensemble(how).answer(np.array([[low], [low], [sure]]), [0, 1, 2])[0] == (label,)
        assert ensemble(how).answer(np.array([[sure]]), [0])[0] == ("best",)
    tied, shares = ensemble("vote").answer(np.array([[[-0.5, -3.0, -4.0]], [[5.0, 4.0, -3.0]]]), [0, 1])
    assert shares.tolist() == [[0.5, 0.0, 0.5, 0.0]]
    assert tied == ("good",)  # mean probability 0.48, of bad 0.32


def test_measures_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    found, right = rng.integers(0, 4, 50), rng.integers(0, 3, 50)
    named = [[RATINGS[index] for index in side] for side in (found, right)]
    assert Ordinal().metrics(*named, RATINGS) == {
        "accuracy": pytest.approx(np.mean(found == right)),
        "mae": pytest.approx(mean_absolute_error(right, found)),
        "quadratic_kappa": pytest.approx(cohen_kappa_score(right, found, weights="quadratic")),
    }


def test_the_kappa_of_one_label_alone_is_undefined():
    assert Ordinal().metrics(["good"], ["good"], RATINGS) == {"accuracy": 1.0, "mae": 0.0, "quadratic_kappa": None}
    assert Ordinal().metrics(["bad"], ["best"], RATINGS) == {"accuracy": 0.0, "mae": 3.0, "quadratic_kappa": 0.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory, text_model):
    folder = tmp_path_factory.mktemp("ordinal") / "run"
    with trained_run(folder, tiny.recipe(text_model, task=TASK, **SMALL), TABLE):
        return folder


@pytest.mark.integration
def test_documents_have_a_label_its_probability_and_the_confusion(run, tmp_path):
    with s3t.Run.open(run) as opened:
        answers = opened.predict(TABLE)
        assert opened.evaluate(TABLE).confusion.sum() == len(TABLE)
    assert answers.probabilities.shape == (len(TABLE), 3)
    assert answers.logits.shape[2] == 2
    frame = answers.to_pandas()
    assert frame["probability"].to_list() == [
        frame.loc[row, f"probability:{label}"] for row, label in enumerate(frame["label"])
    ]
    TABLE.to_parquet(tmp_path / "data.parquet")
    predictions = document("predict", run, "--input", tmp_path / "data.parquet", "--top", 1)["predictions"]
    assert [[row["label"]] for row in predictions] == [list(row["probabilities"]) for row in predictions]
    found = document("evaluate", run, "--data", tmp_path / "data.parquet", "--report")
    assert found["mae"] == mean_absolute_error(*[["abc".index(x) for x in side] for side in (TABLE.label, frame.label)])
    assert [row["label"] for row in found["per_class"]] == ["a", "b", "c"]


def test_exports_have_an_output_a_threshold(run, tmp_path):
    with s3t.Run.open(run) as opened:
        for merge in (False, True):
            (export,) = opened.export(tmp_path, merge=merge).exports
            assert_equal_logits(export.path, opened, TABLE[:6])
    assert AutoModelForSequenceClassification.from_pretrained(export.path).config.num_labels == 2
