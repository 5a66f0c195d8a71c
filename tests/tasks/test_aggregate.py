"""The arithmetic of ensembles and of measures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from s3t.prediction.answers import Answers
from s3t.recipe import Prediction
from s3t.tasks.aggregate import aggregate, choose, softmax
from s3t.tasks.targets import Classification, Regression, text_metrics

WAYS = ["logits", "probabilities", "vote"]
LOGITS = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 5), st.integers(1, 6), st.integers(2, 4)),
    elements=st.floats(-50, 50, width=32),
)


@pytest.mark.parametrize("how", WAYS)
@given(logits=LOGITS)
def test_the_chosen_label_is_one_of_the_likeliest(how, logits):
    probabilities = aggregate(logits, how)
    labels = choose(probabilities, logits)
    assert labels.shape == (logits.shape[1],)
    assert (probabilities[np.arange(len(labels)), labels] == probabilities.max(axis=-1)).all()
    assert np.allclose(probabilities.sum(axis=-1), 1)


def test_the_three_ways_differ_where_a_loud_minority_faces_a_quiet_majority():
    for loud, probabilities in ((1.0, 0), (4.0, 1)):
        logits = np.array([[[9.0, 0.0]], [[0.0, loud]], [[0.0, loud]]])
        answers = {how: int(choose(aggregate(logits, how), logits)[0]) for how in WAYS}
        assert answers == {"logits": 0, "probabilities": probabilities, "vote": 1}


def test_a_tied_vote_goes_to_the_tied_label_that_is_likelier_and_never_to_one_without_a_vote():
    logits = np.array([[[3.0, 0.0, 2.9]], [[0.0, 3.5, 3.4]]])
    votes = aggregate(logits, "vote")
    assert votes.tolist() == [[0.5, 0.5, 0.0]]
    assert softmax(logits).mean(axis=0).argmax() == 2
    assert choose(votes, logits).tolist() == [1]


@given(logits=LOGITS, shift=st.floats(-1e4, 1e4))
def test_softmax_does_not_overflow_and_ignores_a_shift(logits, shift):
    assert np.allclose(softmax(logits), softmax(logits + shift))


def test_nobody_and_an_unknown_way_are_refused():
    with pytest.raises(ValueError, match="at least one member"):
        aggregate(np.zeros((0, 2, 3)), "logits")
    with pytest.raises(ValueError, match="use logits, probabilities or vote"):
        aggregate(np.zeros((1, 2, 3)), "median")


def test_answers_name_labels_in_the_heads_order():
    answers = Answers(target=Classification(), labels=("no", "yes"))
    label, probabilities = answers.answer(np.array([[[0.0, 1.0], [2.0, 0.0]]]), [0])
    assert label == ("yes", "no")
    assert probabilities.shape == (2, 2)


def measured(answers, logits, shards, expected):
    return answers.target.metrics(answers.answer(np.stack(logits), shards)[0], expected, answers.labels)


def test_metrics_of_a_classification_are_accuracy_f1_and_matthews():
    answers = Answers(target=Classification(), labels=("a", "b"))
    logits = [np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])]
    assert measured(answers, logits, [0], ["a", "a", "b", "b"]) == {"accuracy": 1.0, "f1": 1.0, "matthews": 1.0}
    assert measured(answers, logits, [0], ["b", "b", "a", "a"]) == {"accuracy": 0.0, "f1": 0.0, "matthews": -1.0}
    assert measured(answers, [logits[0][:2]], [0], ["a", "a"]) == {"accuracy": 1.0, "f1": 0.0, "matthews": 0.0}
    found = measured(answers, logits, [0], ["a", "b", "b", "b"])
    assert (found["accuracy"], found["f1"]) == (0.75, pytest.approx(0.8))  # of the second label: 2 of 2 right, 2 of 3


def test_f1_of_many_labels_is_the_mean_of_each_labels():
    answers = Answers(target=Classification(), labels=("a", "b", "c", "d"))
    logits = [np.eye(4)[[0, 0, 1, 1]]]
    found = measured(answers, logits, [0], ["a", "b", "b", "c"])
    assert found["f1"] == pytest.approx((2 / 3 + 1 / 2 + 0 + 0) / 4)


def test_a_regression_answers_with_the_mean_and_is_measured_by_pearson():
    answers = Answers(target=Regression(), labels=())
    logits = np.array([[[1.0], [2.0], [3.0]], [[3.0], [4.0], [5.0]]])
    assert answers.answer(logits, [0, 1]) == ((2.0, 3.0, 4.0), None)
    metrics = measured(answers, logits, [0, 1], [20.0, 30.0, 40.0])
    assert metrics["pearson"] == pytest.approx(1.0)
    assert measured(answers, logits, [0, 1], [2.0, 3.0, 4.0])["rmse"] == 0.0
    assert measured(answers, logits, [0, 1], [1.0, 1.0, 1.0])["pearson"] is None


def test_shards_weigh_alike_however_many_of_their_prefixes_answer():
    answers = Answers(target=Classification(), labels=("a", "b"), settings=Prediction(aggregation="vote"))
    votes = np.array([[[1.0, 0.0]], [[1.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 9.0]]])
    label, probabilities = answers.answer(votes, [0, 0, 0, 1, 2])
    assert label == ("b",)
    assert probabilities.tolist() == [[pytest.approx(1 / 3), pytest.approx(2 / 3)]]
    numbers = Answers(target=Regression(), labels=())
    assert numbers.answer(np.array([[[0.0]], [[4.0]], [[6.0]]]), [0, 0, 1])[0] == (pytest.approx(4.0),)


@pytest.mark.parametrize("how", WAYS)
def test_one_member_a_shard_gives_the_bits_of_the_plain_mean(how):
    logits = np.random.default_rng(0).normal(size=(3, 5, 4))
    found = Answers(target=Classification(), labels=tuple("abcd"), settings=Prediction(aggregation=how)).answer(
        logits, [4, 1, 2]
    )[1]
    assert (found == aggregate(logits, how)).all()


def test_members_of_a_shard_weigh_by_their_parts_and_shards_alike():
    answers = Answers(target=Regression(), labels=())
    numbers = np.array([[[0.0]], [[4.0]], [[6.0]]])
    assert answers.answer(numbers, [0, 0, 1], [0.75, 0.25, 0.75])[0] == (pytest.approx(3.5),)
    assert answers.answer(numbers, [0, 0, 1], [1.0, 0.0, 0.0])[0] == (pytest.approx(3.0),)  # who is alone, answers


def test_rouge_l_is_of_the_longest_common_subsequence_of_words():
    """Of four words, the first and the last two are in the right order: precision 3/4, recall 3/3."""
    found = text_metrics(["harbours need big cranes", " no "], ["harbours need cranes", "no"])
    assert found["rouge_l_recall"] == 1.0
    assert found["rouge_l"] == pytest.approx((2 * 0.75 / 1.75 + 1) / 2)
    assert found["exact_match"] == 0.5
