"""An older state of a run in its place is noticed when it is opened, and reconciled (more: `tests/run`)."""

import shutil

import pytest

import s3t
from s3t.core import Place
from testing import tiny
from testing.roles import roles
from tests.slice_files import read_slice

NAMES = ["r3", "r4", "r5"]


@pytest.fixture
def path(text_model, tmp_path):
    """A run that nobody has trained; its backup, from before three deletions, lies beside it."""
    recipe = tiny.recipe(text_model, partition={"shards": 1, "slices": 2}, sequences={"budget": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        pass
    shutil.copytree(run.path, tmp_path / "backup")
    with s3t.Run.open(run.path) as run:
        for name in NAMES:
            run.delete(records=[name])
    return run.path


def put_back(path, *names):
    """Some of what is in the backup; without names, all of it."""
    if not names:
        shutil.rmtree(path)
        shutil.copytree(path.with_name("backup"), path)
    for name in names:
        if (path / name).is_dir():
            shutil.rmtree(path / name)
            shutil.copytree(path.with_name("backup") / name, path / name)
        else:
            (path / name).unlink()


def held(run):
    """Names of all records in the files of slices."""
    places = [Place(0, 0), Place(0, 1)]
    return {
        name
        for place in places
        for name in read_slice(run.path / "slices", place, roles(run).secret).rows["record"].to_pylist()
    }


def test_a_backup_of_the_whole_folder_is_refused_and_reconciled(path):
    put_back(path)
    with pytest.raises(s3t.RestoredError, match="s3t reconcile"):
        s3t.Run.open(path)
    assert s3t.Run.reconcile(path).records == 3
    with s3t.Run.open(path) as run:
        assert not held(run) & set(NAMES)
        assert run.status().records == 24 - 3
        assert run.status().generation > 3  # generation 3 was another deletion
        assert run.delete(records=NAMES).already == tuple(NAMES)
        assert run.audit().ok


def test_a_copy_in_which_as_much_was_deleted_is_not_the_run(path, tmp_path, monkeypatch):
    """It knows as many generations; they took other records."""
    put_back(path)
    with monkeypatch.context() as patch:
        patch.setenv("S3T_STATE", str(tmp_path / "another memory"))
        with s3t.Run.open(path) as run:
            for name in ("r6", "r7", "r8"):
                run.delete(records=[name])
    with pytest.raises(s3t.RestoredError, match="s3t reconcile"):
        s3t.Run.open(path)
    s3t.Run.reconcile(path)
    with s3t.Run.open(path) as run:
        assert not held(run) & {*NAMES, "r6", "r7", "r8"}


def test_slices_that_are_older_than_their_ledger_are_refused(path):
    put_back(path, "slices")
    with pytest.raises(s3t.RestoredError, match=r"is not the version of the slice.*s3t reconcile"):
        s3t.Run.open(path)
    s3t.Run.reconcile(path)
    with s3t.Run.open(path) as run:
        assert not held(run) & set(NAMES)
