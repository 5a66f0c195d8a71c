"""Folders of exports: named by content, given their place at once, found again by their bytes."""

import os
import subprocess
import sys

import pytest

import s3t
from s3t import processes
from s3t.export.folders import files_in, folder_name, is_being_written, left_behind, new_mark, publish
from s3t.export.folders import remove_unchanged as remove

CONTENT = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"tensors", "s3t.json": b"[]", "README.md": b"#"}


def made(folder, **changes):
    folder.mkdir(parents=True)
    for name, content in (CONTENT | changes).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return files_in(folder)


def test_every_byte_of_tensors_and_configuration_is_in_the_name_and_nothing_else_is(tmp_path):
    name = folder_name(0, made(tmp_path / "a"))
    others = [
        made(tmp_path / "b", **{"adapter_model.safetensors": b"tensorT"}),
        made(tmp_path / "c", **{"adapter_config.json": b"{ }"}),
        made(tmp_path / "d", **{"more.safetensors": b""}),
    ]
    assert len({name, *(folder_name(0, files) for files in others), folder_name(1, made(tmp_path / "e"))}) == 5
    assert folder_name(0, made(tmp_path / "f", **{"s3t.json": b"{}", "README.md": b""})) == name


def test_a_folder_gets_its_place_whole_and_a_second_one_of_the_same_content_goes(tmp_path):
    files = made(tmp_path / "part")
    assert publish(tmp_path / "part", tmp_path / "final", files)
    assert files_in(tmp_path / "final") == files
    made(tmp_path / "part")
    assert not publish(tmp_path / "part", tmp_path / "final", files)
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


@pytest.mark.parametrize("what", ["another file", "a link", "a file"])
def test_a_place_that_is_taken_is_refused(tmp_path, what):
    files, final = made(tmp_path / "part"), tmp_path / "final"
    if what == "a link":
        made(tmp_path / "elsewhere")
        final.symlink_to(tmp_path / "elsewhere")
    elif what == "a file":
        final.write_text("")
    else:
        made(final, **{"adapter_config.json": b"[]"})
    with pytest.raises(s3t.InputError, match="holds something else"):
        publish(tmp_path / "part", final, files)
    assert (tmp_path / "part").is_dir()


TEMPLATE = "additional_chat_templates/tools.jinja"


def test_files_of_a_folder_within_are_of_the_content_and_go_with_it(tmp_path):
    files = made(tmp_path / "part", **{TEMPLATE: b"{{ messages }}"})
    assert TEMPLATE in {file.name for file in files}
    assert folder_name(0, files) != folder_name(0, made(tmp_path / "other", **{TEMPLATE: b"{{ tools }}"}))
    final = tmp_path / "final"
    publish(tmp_path / "part", final, files)
    (final / TEMPLATE).with_name("mine.txt").write_text("mine")
    assert remove(final, files) == []
    assert [path.name for path in final.rglob("*") if path.is_file()] == ["mine.txt"]  # and with it the folder
    assert left_behind(tmp_path, "final", files, but={tmp_path / "other"}) == [final]
    (final / TEMPLATE).with_name("mine.txt").unlink()
    assert remove(final, files) == []
    assert not final.exists()


def test_every_file_and_folder_is_on_the_disk_before_the_export_has_its_place(tmp_path, monkeypatch):
    files = made(tmp_path / "part", **{TEMPLATE: b"{{ messages }}"})
    synchronised = []
    monkeypatch.setattr("s3t.store.disk._sync", synchronised.append)
    publish(tmp_path / "part", tmp_path / "final", files)
    part = tmp_path / "part"
    wanted = {part, (part / TEMPLATE).parent, *(part / file.name for file in files)}
    assert (set(synchronised[:-1]), synchronised[-1]) == (wanted, tmp_path)


def test_a_link_in_the_place_of_a_folder_within_is_not_followed(tmp_path):
    files = made(tmp_path / "folder", **{TEMPLATE: b"{{ messages }}"})
    within = (tmp_path / "folder" / TEMPLATE).parent
    within.rename(tmp_path / "base")
    within.symlink_to(tmp_path / "base")
    assert remove(tmp_path / "folder", files) == [tmp_path / "folder" / TEMPLATE]
    assert (tmp_path / "base" / "tools.jinja").exists()


def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path):
    files = made(tmp_path / "elsewhere")
    (tmp_path / "folder").symlink_to(tmp_path / "elsewhere")
    assert remove(tmp_path / "folder", files) == [tmp_path / "folder"]
    assert files_in(tmp_path / "elsewhere") == files


def test_known_exports_and_files_of_the_same_size_alone_are_not_taken_for_copies(tmp_path):
    files = made(tmp_path / "one")
    made(tmp_path / "two")
    (tmp_path / "other").write_bytes(b"tensorX")
    copy = tmp_path / "one" / "adapter_model.safetensors"
    assert left_behind(tmp_path, "gone", files, but={tmp_path / "two"}) == [copy]


def test_a_mark_tells_whether_its_process_still_writes():
    with new_mark() as mark:
        assert is_being_written(mark, announced_at=0.0)
    assert not is_being_written(mark, announced_at=0.0)
    code = "from s3t.export.folders import new_mark\nwith new_mark() as mark: print(mark)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert not is_being_written(ended, announced_at=0.0)


def test_another_machine_s_mark_counts_for_a_day(monkeypatch):
    now = 1_000_000.0
    monkeypatch.setattr(processes.time, "time", lambda: now)
    mark = f"elsewhere_1_2-{os.getpid()}-ab"
    assert is_being_written(mark, announced_at=now - 3600)
    assert not is_being_written(mark, announced_at=now - 90_000)
