"""Who may read a run: its owner, whatever the mask; status names what is open to more, with what closes it."""

import os
import stat

import pytest

import s3t
from testing import tiny


@pytest.fixture
def open_mask():
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder):
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


def test_no_folder_or_file_of_a_run_or_of_its_memory_is_open_to_others(open_mask, tmp_path, text_model, monkeypatch):
    monkeypatch.setenv("S3T_STATE", str(tmp_path / "home" / "state"))
    recipe = tiny.recipe(text_model, partition={"shards": 1}, sequences={"budget": 1}, training={"epochs": 1})
    with s3t.Run.create(tmp_path / "run", recipe=recipe, data=tiny.text_table()) as run:
        run.train()
        run.delete(records=["r1"])
        assert {"slices", "artifacts", "tmp", "slices/shard-000"} <= set(modes(tmp_path / "run"))
        found = {**modes(tmp_path / "run"), **modes(tmp_path / "home"), "run": modes(tmp_path)["run"]}
        assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
        assert run.status().warnings == ()


@pytest.mark.parametrize(("mode", "who"), [(0o711, "others"), (0o750, "its group")])
def test_a_run_that_others_may_enter_is_named_by_status_with_the_remedy(mode, who, trained, state):
    (trained.path / "slices").chmod(0o755)
    assert trained.status().warnings == ()  # nobody gets there
    trained.path.chmod(mode)
    (warning,) = trained.status().warnings
    assert warning.startswith(f"{who} may enter {trained.path}; ")
    assert warning.endswith(f"run `chmod -R go-rwx {trained.path}`")
    trained.path.chmod(0o700)
    trained.delete(records=["r1"])
    state.chmod(0o755)
    (warning,) = trained.status().warnings
    assert f"others may look into {state}, the memory of deletions; run `chmod -R go-rwx {state}`" in warning
