"""A run knows its folder: a copy changes nothing until somebody says what it is; a clone is a run of its own."""

import os
import shutil

import pytest

import s3t
from s3t.deletion.witness import state_folder
from s3t.store.folder import Home, Layout, moved_error, read_description
from testing import tiny
from tests.cli.typed import document, invoke
from tests.run.test_closed import USES

TEXTS = ["w1 w2", "w30"]


@pytest.fixture
def run(deferring):
    return deferring


def copied(run):
    return shutil.copytree(run, run.parent / "copy")


def files(run):
    return {name: content for name, content in tiny.all_files(run).items() if not name.startswith("ledger.sqlite")}


def names_of(run):
    """Whether r3 and r4 are present."""
    with s3t.Run.open(run) as opened:
        return [location.present for location in opened.locate(records=["r3", "r4"])]


def test_a_copy_changes_nothing_and_answers(run):
    copy = copied(run)
    before = files(copy)
    with s3t.Run.open(copy) as opened:
        for change in ("delete", "erase", "train", "extend", "destroy"):
            with pytest.raises(s3t.MovedError, match=r"is a copy of the run in .*clone --adopt") as caught:
                USES[change](opened)
            assert caught.value.aftermath.changed is False
        assert len(opened.predict(TEXTS).predicted) == 2
        assert opened.delete(records=["r3"], dry_run=True).deleted == 1
        assert any("clone --adopt" in warning for warning in opened.status().warnings)
    with pytest.raises(s3t.MovedError):
        s3t.Run.reconcile(copy)
    with pytest.raises(s3t.MovedError, match="is a copy of the run in"):  # it is there
        s3t.Run.open(copy, moved=True)
    assert files(copy) == before
    with s3t.Run.open(run) as original:
        assert original.delete(records=["r3"]).deleted == 1


def test_a_copy_erases_nothing_when_it_is_opened(run):
    """Over a database it would tell the run that its own files are erased."""
    with s3t.Run.open(run) as opened:
        opened.delete(records=["r3"])
    copy = copied(run)
    (copy / "tmp" / "left").write_text("by a killed process")
    with s3t.Run.open(copy) as opened:
        opened.predict(TEXTS)
    assert (copy / "tmp" / "left").exists()


def test_the_command_line_names_the_ways_out(run):
    copy = copied(run)
    error = document("delete", copy, "--record", "r4", status=1)["error"]
    assert (error["kind"], error["changed"]) == ("MovedError", False)
    assert f"s3t clone --adopt {copy}" in error["problems"][0]
    gone = run.with_name("moved away")
    run.rename(gone)
    error = document("delete", copy, "--record", "r4", status=1)["error"]
    assert "if it was moved, say so with --moved" in error["problems"][0]
    assert document("delete", copy, "--record", "r4", "--moved")["deleted"] == 1
    assert document("delete", copy, "--record", "r3")["deleted"] == 1  # it was noted


def test_a_folder_that_was_renamed_is_the_run(run):
    run.rename(run.with_name("renamed"))
    with s3t.Run.open(run.with_name("renamed")) as opened:
        assert opened.delete(records=["r3"]).deleted == 1


def test_a_backup_that_is_put_back_in_place_is_no_copy(run):
    backup = copied(run)
    shutil.rmtree(run)
    shutil.copytree(backup, run)
    with s3t.Run.open(run) as opened:
        assert opened.delete(records=["r3"]).deleted == 1


def test_a_copy_of_hard_links_is_a_copy_and_another_mount_of_the_folder_is_the_folder(run, monkeypatch):
    """By its inode: a container's volume, or a network file system at another path."""
    copy = shutil.copytree(run, run.parent / "copy", copy_function=os.link)
    assert isinstance(moved_error(Layout(copy), run=read_description(Layout(copy)).run), s3t.MovedError)
    here = Home.of(run)
    monkeypatch.setattr(Home, "of", classmethod(lambda cls, folder, **_: cls(**(vars(here) | {"path": "/elsewhere"}))))
    assert moved_error(Layout(run), run="any") is None


def test_a_renamed_run_whose_copy_took_its_name_is_told(run):
    old = run.with_name("old")
    run.rename(old)
    shutil.copytree(old, run)
    with s3t.Run.open(old) as opened, pytest.raises(s3t.MovedError, match="is a copy of the run in"):
        opened.delete(records=["r3"])


def test_a_run_without_a_note_gets_one_and_a_damaged_one_changes_nothing_until_somebody_says_that_it_is_the_run(run):
    (run / "home").unlink()
    s3t.Run.open(run).close()
    assert moved_error(Layout(run), run="any") is None
    with s3t.Run.open(copied(run)) as opened, pytest.raises(s3t.MovedError):
        opened.delete(records=["r3"])
    (run / "home").write_text("{")
    with s3t.Run.open(run) as opened, pytest.raises(s3t.MovedError, match="is damaged"):
        opened.delete(records=["r3"])
    with s3t.Run.open(run, moved=True) as opened:
        assert opened.delete(records=["r3"]).deleted == 1


def test_a_clone_is_a_run_of_its_own(run):
    """The issue's scenario: a deletion in the one leaves the other in service."""
    clone = run.with_name("clone")
    with s3t.Run.clone(run, clone) as other, s3t.Run.open(run) as original:
        assert read_description(Layout(clone)).run != read_description(Layout(run)).run
        assert tiny.artifacts(clone) == tiny.artifacts(run)
        assert other.predict(TEXTS).to_json() == original.predict(TEXTS).to_json()
        other.delete(records=["r3"])
        other.erase()
        original.delete(records=["r4"])
    assert names_of(run) == [True, False]
    assert names_of(clone) == [False, True]
    with s3t.Run.open(clone) as other:
        assert other.audit(replay=1).ok
        other.repair()
    assert len({path.name for path in state_folder().glob("*.deletions")}) == 2


def test_a_clone_holds_no_record_that_waits_to_be_erased(run):
    text = tiny.text_table().set_index("id").text
    longest = max(("r3", "r4", "r5", "r6"), key=lambda name: len(text[name]))
    with s3t.Run.open(run) as opened:
        opened.delete(records=[longest])
    assert any(text[longest].encode() in content for content in tiny.all_files(run).values())
    s3t.Run.clone(run, run.with_name("clone")).close()
    for folder in (run, run.with_name("clone")):
        assert not any(text[longest].encode() in content for content in tiny.all_files(folder).values())


def test_an_adopted_copy_has_deleted_what_the_run_has_deleted_since(run):
    with s3t.Run.open(run) as opened:
        opened.delete(records=["r5"])
        opened.erase()
    copy = copied(run)
    with s3t.Run.open(run) as opened:
        opened.delete(records=["r3"])
    with pytest.raises(s3t.RestoredError, match="clone --adopt"):
        s3t.Run.open(copy)
    with s3t.Run.adopt(copy) as adopted:
        assert adopted.audit().ok
        adopted.delete(records=["r4"])
    assert names_of(copy) == [False, False]
    assert names_of(run) == [False, True]
    with pytest.raises(s3t.InputError, match="is the run itself"):
        s3t.Run.adopt(run)


def test_a_clone_that_fails_leaves_nothing_but_the_run(run, monkeypatch):
    before = sorted(path.name for path in run.parent.iterdir())

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("s3t.run.cloning.shutil.copyfile", full)
        with pytest.raises(s3t.StorageError, match="no run was made"):
            s3t.Run.clone(run, run.with_name("clone"))
    assert sorted(path.name for path in run.parent.iterdir()) == before
    with pytest.raises(s3t.RunFolderError, match="exists already"):
        s3t.Run.clone(run, run)


def test_the_clone_command(run):
    clone, copy = run.with_name("clone"), copied(run)
    assert document("clone", run, clone)["records"] == document("status", run)["records"]
    assert document("clone", "--adopt", copy)["warnings"] == document("status", run)["warnings"]
    assert invoke("clone", run).exit_code == 2
    for folder, record in ((run, "r3"), (clone, "r4"), (copy, "r5")):
        assert document("delete", folder, "--record", record)["deleted"] == 1
    assert [document("status", folder)["generation"] for folder in (run, clone, copy)] == [1, 1, 1]
