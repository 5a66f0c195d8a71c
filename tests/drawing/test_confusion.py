"""Pictures of confusion matrices."""

import numpy as np

from s3t.drawing import draw_confusion
from tests.drawing.pictures import assert_is_picture, texts


def test_every_label_and_every_count_of_many_classes_is_written(tmp_path):
    classes = [f"a_label_of_some_length_{number}" for number in range(30)]
    confusion = np.diag(np.arange(1, 31))
    confusion[0, 29] = 1234
    path = tmp_path / "confusion.svg"
    draw_confusion(confusion, classes, path, title="30 classes")
    assert_is_picture(path)
    written = texts(path)
    assert all(written.count(label) == 2 for label in classes)  # beside and under the cells
    assert {"1234", "30 classes", "label", "answer"} <= set(written)


def test_a_class_without_records_is_drawn_empty(tmp_path):
    path = tmp_path / "confusion.png"
    draw_confusion(np.array([[3, 1], [0, 0]]), ["no", "yes"], path, title="two")
    assert_is_picture(path)
