"""A run that somebody made by typing commands."""

import pytest
import yaml

from testing import tiny
from tests.cli.typed import document


@pytest.fixture(scope="session")
def made(tmp_path_factory, text_model):
    """A folder with recipe.yaml, records.csv and a trained run; each subject has two of 24 records."""
    folder = tmp_path_factory.mktemp("cli")
    recipe = tiny.recipe(text_model, columns={"subject": "person"}, training={"epochs": 1})
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    tiny.text_table(subjects=12).to_csv(folder / "records.csv", index=False)
    document("init", folder / "run", "--data", folder / "records.csv", "--recipe", folder / "recipe.yaml")
    document("train", folder / "run")
    return folder


@pytest.fixture
def run(made, tmp_path):
    """A copy of the trained run, for one test to spoil."""
    return tiny.copy_run(made / "run", tmp_path / "run")
