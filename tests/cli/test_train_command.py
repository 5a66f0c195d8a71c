"""`s3t train --evaluate`, the public records of a recipe, and `s3t evaluate` with `--report` and `--confusion`."""

import json

import pytest
import yaml

from testing import tiny
from tests.cli.typed import document, invoke, problems
from tests.drawing.pictures import assert_is_picture


def made_with(folder, model, **changes):
    small = {"training": {"epochs": 1}, "partition": {"shards": 1, "slices": 2}, "sequences": {"budget": 1}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(tiny.recipe(model, **small, **changes)))
    tiny.text_table().to_csv(folder / "records.csv", index=False)
    public = tiny.text_table(60, seed=7).drop(columns="id")
    public[~public.text.isin(tiny.text_table().text)].to_csv(folder / "new.csv", index=False)
    document("init", folder / "run", "--data", folder / "records.csv", "--recipe", folder / "recipe.yaml")
    return folder / "run"


def test_train_measures_as_evaluate_does(tmp_path, text_model):
    run, new = made_with(tmp_path, text_model), tmp_path / "new.csv"
    told = invoke("train", run, "--evaluate", new)
    lines = invoke("evaluate", run, "--data", new).stdout
    assert told.exit_code == 0
    assert told.stdout.endswith(lines)
    assert document("train", run, "--evaluate", new)["evaluation"] == document("evaluate", run, "--data", new)
    assert "evaluation" not in document("train", run)


def test_a_file_that_cannot_be_measured_on_is_refused_before_training(tmp_path, text_model):
    run, new, rows = made_with(tmp_path, text_model), tmp_path / "spoilt.csv", tiny.text_table()
    for spoilt, problem in (
        (rows.drop(columns="label"), "label"),
        (rows.assign(label="none such"), "outside the run's labels"),
    ):
        spoilt.to_csv(new, index=False)
        assert problem in "".join(problems("train", run, "--evaluate", new))
    assert document("status", run)["alive"] == 0


@pytest.mark.integration
def test_without_a_file_the_public_records_are_measured_on(tmp_path, text_model):
    new = tmp_path / "new.csv"
    run = made_with(tmp_path, text_model, prediction={"select": "validation", "validation": str(new)})
    told = json.loads(invoke("train", run, "--json").stdout)
    assert told["evaluation"] == document("evaluate", run, "--data", new)
    assert "public records" in invoke("train", run).stdout


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
