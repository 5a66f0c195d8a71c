"""A run's folder is renamed, replaced or linked elsewhere while processes have it open."""

import os
import shutil
from pathlib import Path

import pyarrow.parquet
import pytest

import s3t
from s3t import processes
from s3t.deletion.unfinished import new_folder
from s3t.deletion.witness import Witness
from s3t.ledger import Clone
from s3t.ledger.locks import file_lock
from s3t.run import cloning, reporting
from s3t.store import blobs
from s3t.store.artifacts import Artifacts
from s3t.store.disk import temporary_name
from s3t.store.folder import Layout, read_description
from s3t.store.slices import Slices
from testing import tiny
from testing.roles import roles
from tests.run.meanwhile import until

TEXTS = ["w1 w2", "w30"]


@pytest.fixture
def path(deferring_once, tmp_path):
    """A trained run whose slices are rewritten when it is asked to erase."""
    return tiny.copy_run(deferring_once, tmp_path / "run")


def is_held(folder, record="r3"):
    """True if a file of a slice has the record."""
    files = folder.glob("slices/shard-*/*.parquet")
    return any(record in pyarrow.parquet.ParquetFile(file).read()["record"].to_pylist() for file in files)


def ends(run):
    """Wait until the session of a run whose folder was moved has noticed."""
    until(lambda: roles(run).presence._generation is None)


def refusal(*_arguments, **_options):
    raise OSError(5, "killed")


def delete_now(run):
    run.delete(records=["r3"])
    run.erase()


def erased(folder):
    """Delete r3 by a path, with everything waited for."""
    with s3t.Run.open(folder) as other:
        delete_now(other)
        assert [entry.state for entry in other.log()] == ["erased", "erased"]
        assert other.status().warnings == ()
    assert not is_held(folder)


CALLS = {
    "predict": lambda run: run.predict(TEXTS),
    "hold": lambda run: run.hold(TEXTS),
    "train": lambda run: run.train(),
    "delete": lambda run: run.delete(records=["r3"]),
    "erase": lambda run: run.erase(),
    "status": lambda run: run.status(),
    "audit": lambda run: run.audit(),
    "extend": lambda run: run.extend(budget=4),
    "locate": lambda run: run.locate(records=["r3"]),
    "log": lambda run: run.log(),
    "destroy-key": lambda run: run.destroy_key(),
    "export": lambda run: run.export(run.path.with_name("exports")),
}


def test_a_run_that_was_renamed_refuses_everything_and_holds_up_no_deletion(path):
    """The process that had it open makes nothing at the old place."""
    with s3t.Run.open(path) as run:
        run.predict(TEXTS)
        moved = path.rename(path.with_name("moved"))
        for call in CALLS.values():
            with pytest.raises(s3t.MovedError, match="was moved or removed while this process had the run open"):
                call(run)
        ends(run)
        erased(moved)
        moved.rename(path)  # it comes back
        assert len(run.predict(TEXTS).predicted) == 2
        path.rename(moved)
    assert not path.exists()


@pytest.mark.parametrize("copied", [shutil.copy2, os.link])
def test_another_folder_in_the_place_is_refused(path, copied):
    """`mv run aside; cp -r backup run`: pooled connections are to the old ledger's file, which hard links share."""
    backup = shutil.copytree(path, path.with_name("backup"), copy_function=copied)
    with s3t.Run.open(path) as run:
        run.predict(TEXTS)
        path.rename(path.with_name("aside"))
        backup.rename(path)
        for call in CALLS.values():
            with pytest.raises(s3t.MovedError, match="another folder is in the place of"):
                call(run)
        if copied is os.link:
            return
        ends(run)
        erased(path)
        with pytest.raises(s3t.MovedError):
            run.predict(TEXTS)


def test_a_link_that_is_switched_changes_nothing_for_an_open_run(path, deferring_once):
    other, link = tiny.copy_run(deferring_once, path.with_name("other")), path.with_name("link")
    link.symlink_to(path)
    with s3t.Run.open(link) as run:
        run.predict(TEXTS)
        link.unlink()
        link.symlink_to(other)
        with s3t.Run.open(path) as same:
            assert same.delete(records=["r3"]).generation == 1
            assert all(entry.effective_at is not None for entry in same.log())
        assert run.status().generation == 1


@pytest.mark.parametrize(
    ("step", "replaced"),
    [((Artifacts, "erase"), False), ((Slices, "erase"), True), ((blobs, "write_bytes_durably"), True)],
)
def test_a_folder_that_is_away_for_one_step_of_an_erasure_is_not_called_erased(path, step, replaced, monkeypatch):
    """It is back when the step is noted."""
    aside, copy, act = path.with_name("aside"), path.with_name("copy"), getattr(*step)
    if replaced:
        shutil.copytree(path, copy)

    def meanwhile(*arguments, **options):
        path.rename(aside)
        if replaced:
            copy.rename(path)
        try:
            return act(*arguments, **options)
        finally:
            if path.exists():
                path.rename(copy)
            aside.rename(path)

    with s3t.Run.open(path) as run:
        with monkeypatch.context() as patched:
            patched.setattr(*step, meanwhile)
            with pytest.raises(s3t.S3TError):
                delete_now(run)
        assert run.log()[-1].erased_at is None
        assert run.erase().unfinished == ()
        assert not is_held(path)
        assert run.audit().ok


def test_a_lock_makes_no_folder_and_is_of_the_folder_that_was_opened(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    take = file_lock(folder / "lock")
    give = take()
    assert give is not None
    assert file_lock(folder / "lock")() is None
    give()
    folder.rename(tmp_path / "moved")
    with pytest.raises(s3t.MovedError):
        take()
    assert not folder.exists()
    folder.mkdir()
    with pytest.raises(s3t.MovedError):
        take()
    assert list(folder.iterdir()) == []


def test_the_status_says_for_which_process_a_deletion_waits(path, monkeypatch):
    monkeypatch.setattr(reporting, "MOMENT_SECONDS", 0.0)
    with s3t.Run.open(path) as run, s3t.Run.open(path) as other:
        pending = run.hold(TEXTS)
        assert pending.may_leave()
        monkeypatch.setattr(roles(other).deleter, "patience", 0.0)
        other.delete(records=["r3"])
        (warning,) = other.status().warnings
        assert f"deletion 1 waits for process {os.getpid()} of " in warning
        assert "may have an answer on its way" in warning
        pending.release()
        monkeypatch.undo()
        other.erase()
        assert other.status().warnings == ()


def killed_clone(path, to, monkeypatch):
    """What a clone leaves that is killed once all records are copied."""
    with monkeypatch.context() as patched, s3t.Run.open(path) as run:
        patched.setattr(cloning, "write_home", refusal)
        patched.setattr(cloning, "remove_run", refusal)
        with pytest.raises(s3t.StorageError, match="killed"):
            cloning.clone(roles(run), to)
    (left,) = to.parent.glob(".clone.init-*")
    assert is_held(left)
    return left


def test_what_a_killed_clone_left_goes_with_a_deletion_of_the_run(path, tmp_path, monkeypatch):
    """Wherever the clone was to be; while its maker lives, the deletion waits, and says for what."""
    place = tmp_path / "elsewhere"
    place.mkdir()
    (tmp_path / "link").symlink_to(place)
    left = killed_clone(path, tmp_path / "link" / "clone", monkeypatch)
    with s3t.Run.open(path) as run:
        roles(run).deleter.patience = 0.0
        run.delete(records=["r3"])
        with pytest.raises(s3t.StorageError, match="a clone of the run with the record is being made in"):
            run.erase()
        assert left.exists()
        assert run.log()[-1].erased_at is None
        monkeypatch.setattr(processes, "is_running", lambda *_arguments, **_options: False)
        assert run.erase().unfinished == ()
        with roles(run).ledger.reading() as transaction:
            assert transaction.rows.all(Clone) == []
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("another", [False, True])
def test_a_killed_clone_whose_place_is_moved_or_not_mounted_holds_the_deletion_up(path, tmp_path, monkeypatch, another):
    """Until it is back, or somebody says that it is gone. In its place there may be another folder."""
    left = killed_clone(path, tmp_path / "disk" / "clone", monkeypatch)
    monkeypatch.setattr(processes, "is_running", lambda *_arguments, **_options: False)
    aside = left.parent.rename(tmp_path / "aside")
    if another:
        left.parent.mkdir()
    with s3t.Run.open(path) as run:
        with pytest.raises(s3t.StorageError, match="moved, or not mounted"):
            run.delete(records=["r3"])
        assert any("not mounted" in warning for warning in run.status().warnings)
        assert run.log()[-1].erased_at is None
        if another:
            left.parent.rmdir()
        aside.rename(left.parent)
        assert run.erase().unfinished == ()
    assert list(left.parent.iterdir()) == []


@pytest.mark.parametrize("refuses", [False, True])
def test_what_a_killed_clone_left_goes_with_the_next_opening(path, tmp_path, monkeypatch, refuses):
    """Its memory of deletions, too; but if that cannot be removed, its records go all the same."""
    left = killed_clone(path, tmp_path / "elsewhere" / "clone", monkeypatch)
    memory = Witness.of_run(read_description(Layout(left)).run).path
    memory.parent.mkdir(exist_ok=True)
    memory.touch()
    monkeypatch.setattr(processes, "is_running", lambda *_arguments, **_options: False)
    unlink = Path.unlink

    def refused(path, **options):
        if refuses and path == memory:
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", refused)
    s3t.Run.open(path).close()
    assert (left.exists(), memory.exists()) == (False, refuses)


def test_a_clone_is_noted_before_its_first_byte_and_knows_nothing_of_the_note(path, monkeypatch):
    noted, fill = [], cloning._fill

    def watched(parts, made, *others, **options):
        with parts.ledger.reading() as transaction:
            noted.extend(copy.path for copy in transaction.rows.all(Clone))
        assert list(made.root.iterdir()) == []
        fill(parts, made, *others, **options)

    monkeypatch.setattr(cloning, "_fill", watched)
    with s3t.Run.clone(path, path.with_name("clone")) as clone, s3t.Run.open(path) as run:
        assert len(noted) == 1
        for each in (clone, run):
            with roles(each).ledger.reading() as transaction:
                assert transaction.rows.all(Clone) == []


@pytest.mark.parametrize("how", ["renamed", "linked"])
def test_what_a_killed_init_left_is_found_beside_the_runs_own_place(path, how):
    left = new_folder(path).with_name(f".run.init-{temporary_name(2**30)}")
    left.mkdir()
    (left / "records").write_text("w1 w2")
    (path.parent / "elsewhere").mkdir()
    now = path.parent / "elsewhere" / "run"
    if how == "renamed":
        path.rename(now)
    else:
        now.symlink_to(path)
    with s3t.Run.open(now) as run:
        assert not left.exists()
        left.mkdir()
        run.delete(records=["r3"])
        run.erase()
        assert not left.exists()
