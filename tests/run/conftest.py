"""A run that tests of whole folders share."""

import pytest

import s3t
from testing import tiny
from testing.language import language_recipe, make_language_model, prompt_table
from tests.run.worlds import SMALL, trained_run


@pytest.fixture(scope="session")
def deferring_once(state_of_all, tmp_path_factory, text_model):
    """The folder of a trained run of one shard whose deleted records may stay in its slices for an hour."""
    folder = tmp_path_factory.mktemp("deferring") / "run"
    recipe = tiny.recipe(text_model, training={"epochs": 1}, partition={"shards": 1}, deletion={"erase_within": 3600})
    with s3t.Run.create(folder, recipe=recipe, data=tiny.text_table()) as run:
        run.train()
    return folder


@pytest.fixture
def deferring(deferring_once, tmp_path):
    """A copy of that folder, for one test to spoil."""
    return tiny.copy_run(deferring_once, tmp_path / "run")


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    return make_language_model(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def language_once(state_of_all, tmp_path_factory, llama):
    """The folder of a small trained run of a language model, to be copied."""
    folder = tmp_path_factory.mktemp("language") / "run"
    trained_run(folder, language_recipe(llama, **SMALL), prompt_table()).close()
    return folder
