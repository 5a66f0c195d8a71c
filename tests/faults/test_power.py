"""What a loss of power can leave is what was synchronised, and of the rest anything."""

from pathlib import Path

import pytest

from tests.faults.power import Disk, write
from tests.faults.shim import Entry

SEEDS = range(60)


def step(type_of_point, path, other="", *, offset=0, data=b"", mark="D"):
    return Entry(mark=mark, type=type_of_point, number=1, offset=offset, path=str(path), other=str(other), data=data)


@pytest.fixture
def folder(tmp_path):
    """With a file `old`, all of it durable."""
    root = tmp_path / "disk"
    (root / "inner").mkdir(parents=True)
    (root / "old").write_bytes(b"before")
    return root


def outcomes(folder: Path, *steps: Entry) -> list[dict[str, bytes | None]]:
    """What different losses of power leave."""
    found = []
    for seed in SEEDS:
        disk = Disk(folder)
        disk.replay(steps)
        found.append(disk.lose_power(seed))
    return found


def test_what_was_written_and_not_synchronised_may_be_there_or_not(folder):
    changed = step("write", folder / "old", data=b"after!")
    assert {state["old"] for state in outcomes(folder, changed)} == {b"before", b"after!"}
    synced = outcomes(folder, changed, step("sync", folder / "old"))
    assert {state["old"] for state in synced} == {b"after!"}


def test_a_name_is_durable_when_its_folder_is_synchronised_and_not_its_file(folder):
    made = [step("create", folder / "new"), step("write", folder / "new", data=b"n"), step("sync", folder / "new")]
    assert {state.get("new") for state in outcomes(folder, *made)} == {None, b"n"}
    assert {state.get("new") for state in outcomes(folder, *made, step("sync", folder))} == {b"n"}


def test_a_renamed_file_that_was_not_synchronised_may_be_empty_under_its_new_name(folder):
    steps = [
        step("create", folder / "inner" / "part"),
        step("write", folder / "inner" / "part", data=b"whole"),
        step("rename", folder / "inner" / "part", folder / "old"),
        step("sync", folder),
    ]
    assert {b"", b"whole"} <= {state["old"] for state in outcomes(folder, *steps)}
    steps.insert(2, step("sync", folder / "inner" / "part"))
    assert {state["old"] for state in outcomes(folder, *steps)} == {b"whole"}


def test_a_rename_loses_neither_the_old_file_nor_the_new(folder):
    steps = [step("rename", folder / "old", folder / "inner" / "moved")]
    found = {(state.get("old"), state.get("inner/moved")) for state in outcomes(folder, *steps)}
    assert found == {(b"before", None), (None, b"before")}


def test_a_removed_file_may_come_back_until_the_folder_is_synchronised(folder):
    removed = step("unlink", folder / "old")
    assert {state.get("old") for state in outcomes(folder, removed)} == {None, b"before"}
    assert {state.get("old") for state in outcomes(folder, removed, step("sync", folder))} == {None}


def test_what_a_failed_fsync_was_to_write_no_later_fsync_brings_back(folder):
    steps = [
        step("write", folder / "old", data=b"after!"),
        step("sync", folder / "old", mark="F"),
        step("sync", folder / "old"),
    ]
    assert {state["old"] for state in outcomes(folder, *steps)} == {b"before", b"after!"}
    again = [*steps[:2], step("write", folder / "old", data=b"A"), steps[2]]
    assert {state["old"] for state in outcomes(folder, *again)} == {b"After!"}


def test_the_folder_is_written_as_it_was_computed(folder, tmp_path):
    disk = Disk(folder)
    disk.replay([step("mkdir", folder / "more"), step("create", folder / "more" / "x"), step("sync", folder)])
    copy = tmp_path / "copy"
    (copy / "left" / "deep").mkdir(parents=True)
    (copy / "other").touch()
    same = copy.stat().st_ino  # a disk that lost power has the same folders: a clone's place is known by it
    write(copy, disk.now())
    assert copy.stat().st_ino == same
    assert {str(path.relative_to(copy)) for path in copy.rglob("*")} == {"old", "inner", "more", "more/x"}
    assert Disk(copy).now() == disk.now()
