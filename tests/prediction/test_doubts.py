"""Shards that answer no better than a guess, or worse than with fewer slices, are named: `evaluate` and `status`."""

import numpy as np
import pytest

import s3t
from s3t.core import Stage
from s3t.prediction.answers import Answers
from s3t.tasks import task_named
from testing import tiny
from tests.cli.typed import invoke

ONE, TWO = Stage(0, (1,)), Stage(0, (1, 2))
RIGHT = ["a", "b"] * 20


def doubts(answered, *, task="text-classification", expected=None, labels=("a", "b")):
    answers = Answers(target=task_named(task).target, labels=labels)
    return answers.doubts([TWO], answered, RIGHT if expected is None else expected)


def wrong(places, right=RIGHT):
    return [("b" if label == "a" else "a") if place in places else label for place, label in enumerate(right)]


def test_a_guess_is_named():
    (notice,) = doubts({TWO: wrong(range(20))})
    assert notice.startswith("shard 0 scores 0.5, the same answer to every input 0.5: ")
    assert "s3t compare" in notice
    assert doubts({TWO: wrong(range(19))}) == ()
    assert doubts({TWO: ["a"] * 3}, expected=["a"] * 3) == ()  # of one label alone, nothing can be better


def test_fewer_slices_are_named_where_they_are_better_for_certain():
    """Wrong 5 times more, where it is never right instead: more than two standard errors."""
    (notice,) = doubts({ONE: wrong(range(2)), TWO: wrong(range(7))})
    assert notice.startswith("shard 0 scores 0.825, with 1 of its 2 slices 0.95: ")
    assert doubts({ONE: wrong(range(2)), TWO: wrong(range(5))}) == ()
    assert doubts({ONE: wrong(range(7)), TWO: wrong(range(2))}) == ()


def test_numbers_are_as_far_off_as_they_are():
    right = [float(number) for number in range(20)]
    near, far = ([value + error for value in right] for error in (0.1, 1.0))
    (notice,) = doubts({ONE: near, TWO: far}, task="text-regression", expected=right, labels=())
    assert notice.startswith("shard 0 scores -1, with 1 of its 2 slices -0.1: ")
    mean = [float(np.mean(right))] * 20
    (notice,) = doubts({TWO: mean}, task="text-regression", expected=right, labels=())
    assert "the same answer to every input" in notice


@pytest.mark.parametrize(
    ("task", "right", "guess"),
    [
        ("text-multi-label-classification", [("a",), ("a", "b")] * 9, ("a",)),
        ("token-classification", [["a", "b"], ["a", "b", "b"]] * 5, ("b",)),
    ],
)
def test_lists_of_labels_are_guessed_alike(task, right, guess):
    answered = [guess * (len(labels) if task.startswith("token") else 1) for labels in right]
    assert "same answer" in doubts({TWO: answered}, task=task, expected=right)[0]
    assert doubts({TWO: list(map(tuple, right))}, task=task, expected=right) == ()


@pytest.mark.integration
def test_a_run_that_learned_nothing_says_so_everywhere(text_model, tmp_path):
    table = tiny.text_table()
    public = tiny.text_table(60, seed=7)
    public = public[~public.text.isin(table.text)].drop(columns="id")
    public.to_csv(tmp_path / "public.csv", index=False)
    prediction = {"select": "validation", "validation": str(tmp_path / "public.csv")}
    recipe = tiny.recipe(text_model, prediction=prediction, training={"epochs": 1, "learning_rate": 1e-9})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=table) as run:
        assert not any("same answer" in advice for advice in run.status().advice)
        run.train()
        named = {stage.shard for stage in run.status().shards if stage.score <= run.parts.guess}
        assert named
        (advice,) = (advice for advice in run.status().advice if "same answer" in advice)
        assert f"shards {', '.join(map(str, sorted(named)))};" in advice
    ended = invoke("evaluate", tmp_path / "run", "--data", tmp_path / "public.csv")
    for shard in named:
        assert f"warning: shard {shard} scores" in ended.stdout
