"""`s3t train --evaluate`, and the public records of a recipe."""

import json

import pytest
import yaml

from testing import tiny
from tests.cli.typed import document, invoke, problems


def made_with(folder, model, **changes):
    (folder / "recipe.yaml").write_text(yaml.safe_dump(tiny.recipe(model, training={"epochs": 1}, **changes)))
    tiny.text_table().to_csv(folder / "records.csv", index=False)
    document("init", folder / "run", "--data", folder / "records.csv", "--recipe", folder / "recipe.yaml")
    public = tiny.text_table(60, seed=7).drop(columns="id")
    public[~public.text.isin(tiny.text_table().text)].to_csv(folder / "new.csv", index=False)
    return folder / "run"


def test_train_measures_as_evaluate_does(tmp_path, text_model):
    run, new = made_with(tmp_path, text_model), tmp_path / "new.csv"
    told = invoke("train", run, "--evaluate", new)
    lines = invoke("evaluate", run, "--data", new).stdout
    assert told.exit_code == 0
    assert told.stdout.endswith(lines)
    assert document("train", run, "--evaluate", new)["evaluation"] == document("evaluate", run, "--data", new)
    assert "evaluation" not in document("train", run)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda rows: rows.drop(columns="label"), "label"),
        (lambda rows: rows.assign(label="none such"), "outside the run's labels"),
    ],
)
def test_a_file_that_cannot_be_measured_on_is_refused_before_training(tmp_path, text_model, spoil, problem):
    run, new = made_with(tmp_path, text_model), tmp_path / "spoilt.csv"
    spoil(tiny.text_table()).to_csv(new, index=False)
    assert problem in "".join(problems("train", run, "--evaluate", new))
    assert document("status", run)["alive"] == 0


@pytest.mark.integration
def test_without_a_file_the_public_records_are_measured_on(tmp_path, text_model):
    new = tmp_path / "new.csv"
    public = tiny.text_table(60, seed=7).drop(columns="id")
    public[~public.text.isin(tiny.text_table().text)].to_csv(new, index=False)
    run = made_with(tmp_path, text_model, prediction={"select": "validation", "validation": str(new)})
    told = json.loads(invoke("train", run, "--json").stdout)
    assert told["evaluation"] == document("evaluate", run, "--data", new)
    assert "public records" in invoke("train", run).stdout
