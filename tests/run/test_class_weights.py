"""Weights of labels: as torch and scikit-learn have them, and counted in a stage's own records alone."""

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight

from s3t.errors import RecipeError
from s3t.recipe import recipe_from
from s3t.tasks import TASKS
from testing import tiny
from tests.run.worlds import SMALL, assert_deletions_are_exact, trained_run

TARGET = TASKS["text-classification"].target
LABELS = ["a", "b", "c"]
TARGETS = torch.tensor([0, 0, 0, 2, 0, 2])


def test_balanced_weights_are_scikit_learns_and_declared_ones_torchs():
    balanced = TARGET.weighted("balanced", LABELS, TARGETS).weights
    expected = compute_class_weight("balanced", classes=np.arange(3), y=np.append(TARGETS, 1))
    assert TARGET.weighted("balanced", LABELS, torch.tensor([*TARGETS, 1])).weights == pytest.approx(expected)
    assert balanced == (0.5, 2.0, 1.0)  # of a label that is not there, any
    logits = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    declared = TARGET.weighted({"c": 3.0}, LABELS, TARGETS)
    assert declared.weights == (1.0, 1.0, 3.0)
    each = torch.nn.functional.cross_entropy(logits, TARGETS, reduction="none")
    assert float(declared.loss(logits, TARGETS)) == pytest.approx(
        float((each * torch.tensor([1, 1, 1, 3, 1, 3.0])).mean())
    )
    assert float(TARGET.loss(logits, TARGETS)) == pytest.approx(float(each.mean()))


def test_a_run_that_forgot_equals_one_that_never_knew(text_model, tmp_path):
    """Also where all records of a label leave a slice; and unlike runs with other weights."""
    table = tiny.text_table(40)
    rare = table.label == "b"
    recipe = tiny.recipe(text_model, sequences={"budget": 1}, training={"epochs": 1, "class_weight": "balanced"})
    assert_deletions_are_exact(tmp_path, recipe, table, [list(table[rare].id[:-1]), [table.id.iloc[0]]])


def test_a_label_of_more_weight_is_answered_more_often(text_model, tmp_path):
    table, found = tiny.text_table(), []
    for name, weights in (("even", None), ("uneven", {"b": 50.0})):
        recipe = tiny.recipe(text_model, **SMALL, training={"class_weight": weights})
        with trained_run(tmp_path / name, recipe, table) as run:
            found.append(list(run.predict(table.text.tolist()).predicted).count("b"))
    assert found[1] > found[0]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"training": {"class_weight": {"x": 2}}}, r"\['x'\] are not among the labels"),
        ({"training": {"class_weight": {"a": 0}}}, "greater than 0"),
        ({"training": {"class_weight": {"a": 2}}, "labels": "infer"}, "declare the labels, or set balanced"),
        ({"training": {"class_weight": "balanced"}, "head": "ridge"}, "weigh all records alike"),
        ({"training": {"class_weight": "balanced"}, "task": "text-regression", "labels": None}, "has no such weights"),
        ({"training": {"class_weight": "even"}}, "class_weight"),
    ],
)
def test_weights_that_mean_nothing_are_refused(changes, problem, tmp_path):
    with pytest.raises(RecipeError, match=problem):
        recipe_from(tiny.recipe(tmp_path, **{"training": {}} | changes))


def test_labels_that_yaml_reads_as_numbers_have_weights(tmp_path):
    recipe = tiny.recipe(tmp_path, training={"class_weight": {1: 2}}) | {"labels": [0, 1]}
    assert recipe_from(recipe).training.class_weight == {"1": 2.0}
