"""A full disk: a real one where this process may mount a small file system, else a limit on the size of files.

Either the operation changes nothing, or it is accepted, and finishes once there is room.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import sqlite3
import subprocess

import pytest
import yaml
from typer.testing import CliRunner

import s3t
from s3t.cli.app import app_of
from testing import tiny

PAGE = 4096
REMEDY = re.compile("free space|raise the limit on the size of files")


class MountedDisk:
    """A file system of 8 MiB that is filled with a file."""

    def __init__(self, folder):
        self.folder = folder
        # For the deletion: from no page of the ledger's log to all that a deletion writes.
        self.rooms = [pages * PAGE for pages in (0, 1, 4, 8, 12, 16, 20, 24, 32, 64)]
        self.rooms_init = [0, PAGE, 4 * PAGE, 16 * PAGE]

    def attempt(self, method, room, *arguments):
        """The StorageError's text of `create`, `delete` or `train` with so many bytes free; "" if it went through."""
        ballast = self.folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\1" * PAGE)
            except OSError:
                file.truncate(file.tell() - room)
        try:
            METHODS[method](*arguments)
        except s3t.StorageError as error:
            return str(error)
        finally:
            ballast.unlink()
        return ""


class FileLimit:
    """This process cannot write files beyond a size; Python ignores the signal, so writing fails."""

    def __init__(self, folder):
        self.folder = folder
        self.rooms = [0, 500, 3000, 20_000, 1_000_000]
        self.rooms_init = [0, 1000, 20_000]

    def attempt(self, method, room, *arguments):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            METHODS[method](*arguments)
        except s3t.StorageError as error:
            return str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        return ""


def create(folder, recipe, data):
    s3t.Run.create(folder, recipe=recipe, data=data).close()


def delete(folder):
    with s3t.Run.open(folder) as run:
        run.delete(records=["r3"])


def train(folder):
    with s3t.Run.open(folder) as run:
        run.train()


METHODS = {"create": create, "delete": delete, "train": train}


def try_to_mount(folder):
    mount = ["mount", "-t", "tmpfs", "-o", f"size={8 * 2**20}", "tmpfs", str(folder)]
    try:
        return os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


@pytest.fixture
def disk(tmp_path):
    """The best full disk that this machine allows."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not try_to_mount(folder):
        yield FileLimit(folder)
        return
    try:
        yield MountedDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory, text_model):
    """A recipe and records as files."""
    folder = tmp_path_factory.mktemp("inputs")
    recipe = tiny.recipe(text_model, training={"epochs": 1})
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    tiny.text_table().to_csv(folder / "records.csv", index=False)
    return folder / "recipe.yaml", folder / "records.csv"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, inputs):
    """A trained run, to be copied."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    create(folder, *inputs)
    train(folder)
    return folder


@pytest.fixture(scope="module")
def never_knew(tmp_path_factory, inputs):
    """The artifacts of a run without r3."""
    folder = tmp_path_factory.mktemp("never-knew") / "run"
    table = tiny.text_table()
    create(folder, inputs[0], table[table.id != "r3"])
    train(folder)
    return tiny.artifacts(folder)


def accepted_or_untouched(folder, before, told):
    """Whether the deletion was accepted, once it is seen that the run is either as it was or finishes the job."""
    with s3t.Run.open(folder) as run:
        status = run.status()
        accepted = status.generation == 1
        assert status.generation in (0, 1)
        assert status.records == 24 - accepted
        assert run.audit().ok
        if accepted:
            assert tiny.artifacts(folder).items() < before.items()
            assert not told or "out of use" in told, told
        else:
            assert tiny.artifacts(folder) == before
            assert "out of use" not in told, told
            assert told
        report = run.delete(records=["r3"])
        assert report.already == (("r3",) if accepted else ())
        assert report.deleted == (not accepted)
    return accepted


def test_init_on_a_full_disk_leaves_no_run_and_says_the_remedy(disk, inputs):
    run = disk.folder / "run"
    for room in disk.rooms_init:
        assert REMEDY.search(disk.attempt("create", room, run, *inputs).lower())
        assert list(disk.folder.iterdir()) == []
    assert disk.attempt("create", 2**20, run, *inputs) == ""
    s3t.Run.open(run).close()


def test_the_command_line_fails_on_a_full_disk_with_status_1_and_the_remedy(disk, inputs, monkeypatch):
    results = []

    def init(*_):
        run, recipe, data = disk.folder / "run", *map(str, inputs)
        results.append(CliRunner().invoke(app_of(), ["init", str(run), "--data", data, "--recipe", recipe, "--json"]))

    monkeypatch.setitem(METHODS, "create", init)
    disk.attempt("create", 0)
    (result,) = results
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert document["error"]["kind"] == "StorageError"
    assert REMEDY.search(document["error"]["problems"][0].lower())
    assert document["error"]["changed"] is False
    assert REMEDY.search(result.stderr.lower())
    assert list(disk.folder.iterdir()) == []


def test_a_deletion_on_a_full_disk_changes_nothing_or_finishes_when_there_is_room(disk, whole, never_knew, state):
    """In ever more room: refused, then accepted but not finished, then done."""
    folder, before = disk.folder / "run", tiny.artifacts(whole)
    outcomes = []
    for room in disk.rooms:
        tiny.copy_run(whole, folder)
        shutil.rmtree(state, ignore_errors=True)
        told = disk.attempt("delete", room, folder)
        assert not told or REMEDY.search(told.lower())
        outcomes.append((accepted_or_untouched(folder, before, told), bool(told)))
        last = room == disk.rooms[-1]
        if last:
            train(folder)
            assert tiny.artifacts(folder) == never_knew
        shutil.rmtree(folder)
    assert outcomes[0] == (False, True)
    assert outcomes[-1] == (True, False)


def test_a_deletion_that_was_accepted_before_the_disk_was_full_says_so_and_finishes_later(
    disk, whole, never_knew, monkeypatch
):
    """The disk fills up between acceptance and erasure."""
    from s3t.store.slices import Slices

    folder, before = disk.folder / "run", tiny.artifacts(whole)
    tiny.copy_run(whole, folder)
    read = Slices.read

    def fill_the_disk(*arguments):
        (folder / "tmp").rmdir()
        (folder / "tmp").write_text("no folder, so no temporary file can be written")
        return read(*arguments)

    with s3t.Run.open(folder) as run, monkeypatch.context() as patched:
        patched.setattr(Slices, "read", fill_the_disk)
        with pytest.raises(s3t.StorageError, match="out of use already") as caught:
            run.delete(records=["r3"])
    (folder / "tmp").unlink()
    assert accepted_or_untouched(folder, before, str(caught.value))
    train(folder)
    assert tiny.artifacts(folder) == never_knew


def test_a_ledger_that_refuses_after_acceptance_does_not_say_that_nothing_was_changed(whole, tmp_path):
    """A trigger stands for the disk that fills up at the ledger's last page."""
    folder, before = tmp_path / "run", tiny.artifacts(whole)
    tiny.copy_run(whole, folder)
    trigger = "CREATE TRIGGER full BEFORE DELETE ON erasing_records BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    with contextlib.closing(sqlite3.connect(folder / "ledger.sqlite", isolation_level=None)) as ledger:
        ledger.execute(trigger)
        with pytest.raises(s3t.StorageError, match="out of use already") as caught:
            delete(folder)
        assert "nothing was changed" not in str(caught.value)
        with s3t.Run.open(folder) as reopened:  # what is alive serves on, and the status says what is left to do
            assert any("out of use already" in warning for warning in reopened.status().warnings)
        ledger.execute("DROP TRIGGER full")
    assert accepted_or_untouched(folder, before, str(caught.value))


def test_a_request_is_accepted_although_an_earlier_one_cannot_be_erased(whole, tmp_path):
    folder = tmp_path / "run"
    tiny.copy_run(whole, folder)
    with s3t.Run.open(folder) as run:
        (folder / "tmp").rmdir()
        (folder / "tmp").write_text("no folder, so no temporary file can be written")
        with pytest.raises(s3t.StorageError, match="out of use already"):
            run.delete(records=["r3"])
        with pytest.raises(s3t.StorageError, match="out of use already"):
            run.delete(records=["r4"])
        assert run.status().generation == 2
        assert [entry.state for entry in run.log()] == ["erased", "effective", "effective"]
        (folder / "tmp").unlink()
        assert run.delete(records=["r3", "r4"]).already == ("r3", "r4")
        run.erase()
        assert [entry.state for entry in run.log()] == ["erased"] * 3


def test_training_on_a_full_disk_keeps_what_is_stored_and_goes_on_when_there_is_room(disk, inputs, whole):
    folder = disk.folder / "run"
    create(folder, *inputs)
    told = disk.attempt("train", 24 * PAGE if isinstance(disk, MountedDisk) else 2000, folder)
    assert REMEDY.search(told.lower())
    with s3t.Run.open(folder) as run:
        assert run.status().missing > 0
        assert run.audit().ok
    assert tiny.artifacts(folder).items() < tiny.artifacts(whole).items()
    train(folder)
    assert tiny.artifacts(folder) == tiny.artifacts(whole)
