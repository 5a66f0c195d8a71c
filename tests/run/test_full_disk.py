"""A full disk: a real one where this process may mount a small file system, else a limit on the size of files.

Either the operation changes nothing, or it is accepted, and finishes once there is room.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess

import pytest
import yaml
from typer.testing import CliRunner

import s3t
from s3t.cli.app import app_of
from testing import tiny
from tests.run.worlds import SMALL, artifacts_after, trained_run

PAGE = 4096
REMEDY = re.compile("free space|raise the limit on the size of files")


class MountedDisk:
    """A file system of 8 MiB that is filled with a file."""

    # For the deletion: from no page of the ledger's log to all that a deletion writes.
    rooms = tuple(pages * PAGE for pages in (0, 1, 8, 16, 24, 64))
    rooms_init = (0, 4 * PAGE, 16 * PAGE)
    room_train = 24 * PAGE

    def __init__(self, folder):
        self.folder = folder

    @contextlib.contextmanager
    def full(self, room):
        ballast = self.folder / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"\1" * PAGE)
            except OSError:
                file.truncate(file.tell() - room)
        try:
            yield
        finally:
            ballast.unlink()


class FileLimit:
    """This process cannot write files beyond a size; Python ignores the signal, so writing fails."""

    rooms = (0, 500, 3000, 20_000, 1_000_000)
    rooms_init = (0, 1000, 20_000)
    room_train = 2000

    def __init__(self, folder):
        self.folder = folder

    @contextlib.contextmanager
    def full(self, room):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)


def attempt(disk, room, act, *arguments):
    """The StorageError's text of what was tried with so many bytes free; "" if it went through."""
    with disk.full(room):
        try:
            act(*arguments)
        except s3t.StorageError as error:
            return str(error)
    return ""


def create(folder, recipe, data):
    s3t.Run.create(folder, recipe=recipe, data=data).close()


def delete(folder):
    with s3t.Run.open(folder) as run:
        run.delete(records=["r3"])


def train(folder):
    with s3t.Run.open(folder) as run:
        run.train()


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
    recipe = tiny.recipe(text_model, training={"epochs": 1}, **SMALL)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    tiny.text_table().to_csv(folder / "records.csv", index=False)
    return folder / "recipe.yaml", folder / "records.csv"


@pytest.fixture(scope="module")
def whole(state_of_all, tmp_path_factory, inputs):
    """A trained run, to be copied."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    trained_run(folder, *inputs).close()
    return folder


@pytest.fixture(scope="module")
def never_knew(state_of_all, tmp_path_factory, inputs):
    """The artifacts of a run without r3."""
    table = tiny.text_table()
    return artifacts_after(tmp_path_factory.mktemp("never-knew") / "run", inputs[0], table[table.id != "r3"])


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
        assert REMEDY.search(attempt(disk, room, create, run, *inputs).lower())
        assert list(disk.folder.iterdir()) == []
    assert attempt(disk, 2**20, create, run, *inputs) == ""
    s3t.Run.open(run).close()


def test_the_command_line_fails_on_a_full_disk_with_status_1_and_the_remedy(disk, inputs):
    recipe, data = map(str, inputs)
    with disk.full(0):
        result = CliRunner().invoke(
            app_of(), ["init", str(disk.folder / "run"), "--data", data, "--recipe", recipe, "--json"]
        )
    assert result.exit_code == 1
    error = json.loads(result.stdout)["error"]
    assert (error["kind"], error["changed"]) == ("StorageError", False)
    assert REMEDY.search(error["problems"][0].lower())
    assert REMEDY.search(result.stderr.lower())
    assert list(disk.folder.iterdir()) == []


def test_a_deletion_on_a_full_disk_changes_nothing_or_finishes_when_there_is_room(disk, whole, never_knew, state):
    """In ever more room: refused, then accepted but not finished, then done."""
    folder, before = disk.folder / "run", tiny.artifacts(whole)
    outcomes = []
    for room in disk.rooms:
        tiny.copy_run(whole, folder)
        shutil.rmtree(state, ignore_errors=True)
        told = attempt(disk, room, delete, folder)
        assert not told or REMEDY.search(told.lower())
        outcomes.append((accepted_or_untouched(folder, before, told), bool(told)))
        last = room == disk.rooms[-1]
        if last:
            train(folder)
            assert tiny.artifacts(folder) == never_knew
        shutil.rmtree(folder)
    assert outcomes[0] == (False, True)
    assert outcomes[-1] == (True, False)


def test_requests_are_accepted_although_no_temporary_file_can_be_written_and_finish_later(whole, never_knew, tmp_path):
    """The disk fills up between acceptance and erasure."""
    folder, before = tmp_path / "run", tiny.artifacts(whole)
    tiny.copy_run(whole, folder)
    with s3t.Run.open(folder) as run:
        (folder / "tmp").rmdir()
        (folder / "tmp").write_text("no folder")
        with pytest.raises(s3t.StorageError, match="out of use already") as caught:
            run.delete(records=["r3"])
    (folder / "tmp").unlink()
    assert accepted_or_untouched(folder, before, str(caught.value))
    train(folder)
    assert tiny.artifacts(folder) == never_knew
    with s3t.Run.open(folder) as run:
        (folder / "tmp").rmdir()
        (folder / "tmp").write_text("no folder")
        for record in ("r4", "r5"):
            with pytest.raises(s3t.StorageError, match="out of use already"):
                run.delete(records=[record])
        assert [entry.state for entry in run.log()][-2:] == ["effective", "effective"]
        (folder / "tmp").unlink()
        assert run.delete(records=["r4", "r5"]).already == ("r4", "r5")
        run.erase()
        assert {entry.state for entry in run.log()} == {"erased"}


def test_training_on_a_full_disk_keeps_what_is_stored_and_goes_on_when_there_is_room(disk, inputs, whole):
    folder = disk.folder / "run"
    create(folder, *inputs)
    told = attempt(disk, disk.room_train, train, folder)
    assert REMEDY.search(told.lower())
    with s3t.Run.open(folder) as run:
        assert run.status().missing > 0
        assert run.audit().ok
    assert tiny.artifacts(folder).items() < tiny.artifacts(whole).items()
    train(folder)
    assert tiny.artifacts(folder) == tiny.artifacts(whole)
