"""Runs without stages, made once and copied; `trained` of tests/conftest.py is one of the same records with stages."""

import pytest

import s3t
from s3t.core import Place
from testing import tiny
from tests.deletion.runs import patient_copy
from tests.run.worlds import records_by_slice


@pytest.fixture(scope="session")
def made(state_of_all, text_model, tmp_path_factory):
    """The folder of a run of 24 records in 2 shards of 3 slices, that nothing was deleted from."""
    path = tmp_path_factory.mktemp("made") / "run"
    s3t.Run.create(path, recipe=tiny.recipe(text_model), data=tiny.text_table()).close()
    return path


@pytest.fixture
def folder(made, tmp_path):
    """The folder of a copy of that run, which nobody has open."""
    return tiny.copy_run(made, tmp_path / "run")


@pytest.fixture
def run(folder):
    """That copy, opened."""
    with s3t.Run.open(folder) as run:
        yield run


@pytest.fixture
def patient(made, tmp_path):
    with s3t.Run.open(patient_copy(made, tmp_path / "patient")) as run:
        yield run


@pytest.fixture(scope="session")
def records(text_model):
    """Names of the records by slice."""
    places = records_by_slice(tiny.recipe(text_model), tiny.text_table())
    return {Place(*place): ids for place, ids in places.items()}


@pytest.fixture(scope="session")
def fullest(records):
    """The slice with most records, and these."""
    return max(records.items(), key=lambda item: len(item[1]))
