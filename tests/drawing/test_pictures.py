"""Pictures of compared systems, of confusion matrices, and of depth against deletions."""

import numpy as np
import pytest

from s3t.comparison import ComparedSystem, Comparison, Point
from s3t.drawing import _quantile, draw_comparison, draw_confusion, draw_depths
from tests.drawing.pictures import assert_is_picture, texts

NUMBERS = [1, 2, 4, 8, 16]
RETAINED = np.array([[1, 1, 0.9], [1, 0.9, 0.5], [1, 0.6, 0.2], [1, 0.2, 0], [1, 0, 0]])


def comparison(**scores):
    measures = dict.fromkeys(("train_seconds", "train_hours", "delete_milliseconds", "answer_milliseconds"), 1.0)
    systems = [
        ComparedSystem(
            name=name,
            recipe={},
            points=(Point(deleted=2, before=None, after=score, repair_seconds=1),),
            hours_a_year=hours,
            stored_bytes=1,
            **measures,
        )
        for hours, (name, score) in enumerate(scores.items(), start=1)
    ]
    counts = {"records": 90, "trained_on": 8, "scored_on": 2}
    return Comparison(systems=systems, left_out={}, guess=0.25, best="ridge", advice="", **counts)


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_pictures_of_compared_systems_and_depths_are_written_in_every_format(tmp_path, suffix):
    draw_comparison(comparison(ridge=0.9, full=0.8), tmp_path / f"systems{suffix}")
    draw_depths(NUMBERS, RETAINED, tmp_path / f"depth{suffix}", title="two shards")
    assert len([*tmp_path.iterdir()]) == 2
    for path in tmp_path.iterdir():
        assert_is_picture(path)


def test_each_system_that_answers_is_named_beside_a_guess(tmp_path):
    draw_comparison(comparison(ridge=0.9, full=0.8, sisa=None), tmp_path / "systems.svg")
    found = set(texts(tmp_path / "systems.svg"))
    assert {"ridge", "full", "a guess: 0.25", "8 of 90 records"} <= found
    assert "sisa" not in found


def test_every_label_and_every_count_of_many_classes_is_written(tmp_path):
    classes = [f"a_label_of_some_length_{number}" for number in range(20)]
    confusion = np.diag([*range(1, 20), 0])  # no record of the last
    confusion[0, 19] = 1234
    draw_confusion(confusion, classes, tmp_path / "confusion.svg", title="20 classes")
    written = texts(tmp_path / "confusion.svg")
    assert all(written.count(label) == 2 for label in classes)  # beside and under the cells
    assert {"1234", "20 classes", "label", "answer"} <= set(written)


def test_with_repairs_the_depth_without_them_is_beside(tmp_path):
    for name, unrepaired in (("plain", None), ("repaired", np.array([2, 1.5, 1, 0.5, 0]))):
        draw_depths(NUMBERS, RETAINED, tmp_path / f"{name}.svg", title=name, unrepaired=unrepaired)
        found = texts(tmp_path / f"{name}.svg")
        assert {name, "mean"} <= set(found)
        assert ("never repaired" in found) == (name == "repaired")


def test_quantiles_are_depths_that_so_many_shards_do_not_exceed():
    retained = np.array([[1, 0.6, 0.2]])  # depths 0, 1 and 2 with the shares 0.4, 0.4 and 0.2
    assert [int(_quantile(retained, share)[0]) for share in (0.05, 0.4, 0.41, 0.8, 0.81, 1)] == [0, 0, 1, 1, 2, 2]
