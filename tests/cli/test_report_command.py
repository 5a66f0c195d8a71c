"""`s3t evaluate --report` and `--confusion`."""

import pytest

from tests.cli.typed import document, invoke, problems
from tests.drawing.pictures import assert_is_picture


def test_a_report_of_each_label_is_in_the_document_and_in_a_table(made, tmp_path):
    asked = ("evaluate", made / "run", "--data", made / "records.csv", "--no-depths")
    plain, found = document(*asked), document(*asked, "--report")
    assert plain.items() <= found.items()
    assert found.keys() - plain.keys() == {"classes", "per_class", "means", "confusion"}
    assert found["classes"] == [row["label"] for row in found["per_class"]] == ["a", "b", "c"]
    assert [sum(row) for row in found["confusion"]] == [row["support"] for row in found["per_class"]] == [12, 11, 1]
    shown = invoke(*asked, "--report").stdout
    for part in ("each label", "precision", "recall", "support", "macro avg", "weighted avg"):
        assert part in shown


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_confusion_matrix_is_drawn(made, tmp_path, suffix):
    picture = tmp_path / f"confusion{suffix}"
    told = invoke("evaluate", made / "run", "--data", made / "records.csv", "--no-depths", "--confusion", picture)
    assert f"drawn: {picture}" in told.stdout.replace("\n", "")
    assert_is_picture(picture)


def test_a_place_where_no_picture_can_be_is_refused_before_any_work(made, tmp_path):
    (problem,) = problems(
        "evaluate", made / "run", "--data", made / "records.csv", "--confusion", tmp_path / "matrix.gif"
    )
    assert ".png" in problem
