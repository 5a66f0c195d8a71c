"""Core dumps of a process that had the run in memory are found and removed; no other file is."""

import os
import resource
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from s3t.deletion import core_dumps as module
from s3t.deletion.core_dumps import core_dumps, no_core_dumps, remove_core_dumps


def kernel_writes_files():
    return not module.CORE_PATTERN.read_text().startswith(("|", "@"))


def crash(folder, words, before="pass"):
    """A Python process that crashes in `folder` with words in its memory, and with core dumps allowed."""
    code = f"import os, sys; held = sys.argv[1].encode(); {before}; os.abort()"
    subprocess.run(
        [sys.executable, "-c", code, str(words)],
        cwd=folder,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2),
        stderr=subprocess.DEVNULL,
    )


def elf(kind=4, big=False):
    return b"\x7fELF\x02" + (b"\x02" if big else b"\x01") + bytes(10) + struct.pack(">H" if big else "<H", kind)


def written(path, content, *words):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content + bytes(100) + b"\x00".join(map(os.fsencode, words)))
    return path


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def dumped(tmp_path, monkeypatch):
    """The folder that the kernel is made to say it writes core dumps to."""
    pattern = tmp_path / "core_pattern"
    pattern.write_text(f"{tmp_path}/dumps [x]/%%core-%e.%p%\n")
    monkeypatch.setattr(module, "CORE_PATTERN", pattern)
    (tmp_path / "dumps [x]").mkdir()
    return tmp_path / "dumps [x]"


@pytest.mark.skipif(not kernel_writes_files(), reason="the kernel hands core dumps to a program")
@pytest.mark.parametrize("where", ["here", "run"])
def test_a_real_crash_is_found_and_removed_and_another_program_s_is_not(run, tmp_path, monkeypatch, where):
    folder = run if where == "run" else tmp_path / "here"
    folder.mkdir(exist_ok=True)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "here" if where == "here" else tmp_path / "other")
    crash(folder, run / "ledger.sqlite")
    found = core_dumps(run)
    assert len(found) == 1
    assert found[0].parent == folder
    assert remove_core_dumps(run) == found
    assert not any(folder.glob("core*"))
    crash(folder, tmp_path / "another run")
    left = list(folder.glob("core*"))
    assert len(left) == 1
    assert remove_core_dumps(run) == []
    assert left[0].exists()


@pytest.mark.skipif(not kernel_writes_files(), reason="the kernel hands core dumps to a program")
def test_a_process_that_forbids_core_dumps_leaves_none(run):
    crash(run, run)
    assert len(remove_core_dumps_in(run)) == 1
    forbid = "from s3t.deletion.core_dumps import no_core_dumps; no_core_dumps()"
    crash(run, run, before=forbid)
    assert remove_core_dumps_in(run) == []


def remove_core_dumps_in(folder):
    found = list(folder.glob("core*"))
    for path in found:
        path.unlink()
    return found


def test_the_limit_is_of_this_process_and_the_hard_one_stays():
    before = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        no_core_dumps()
        assert resource.getrlimit(resource.RLIMIT_CORE) == (0, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("number", ["", ".17"])
def test_a_dump_in_the_pattern_s_folder_goes(run, dumped, big, number):
    path = written(dumped / f"%core-python.123{number}", elf(big=big), "x", run, "y")
    assert remove_core_dumps(run) == [path]
    assert not path.exists()
    assert remove_core_dumps(run) == []


def test_a_run_is_found_by_the_name_it_was_given_through_a_link_too(run, dumped, tmp_path):
    (tmp_path / "link").symlink_to(run)
    given = written(dumped / "%core-a.1", elf(), tmp_path / "link" / "tmp")
    followed = written(dumped / "%core-a.2", elf(), run / "tmp")
    assert core_dumps(tmp_path / "link") == [given, followed]
    assert core_dumps(run) == [followed]


def test_other_files_are_left_alone(run, dumped, tmp_path):
    written(dumped / "%core-a.1", elf(), f"{run}2")  # another run, whose name goes on
    written(dumped / "%core-a.2", elf(), f"{run}é")
    written(dumped / "%core-a.3", elf(kind=2), run)  # a program, not a dump
    written(dumped / "%core-a.4", b"not ELF at all, but", run)
    written(dumped / "%core-a.5", b"\x7fELF")
    written(dumped / "core-a.6", elf(), run)  # not named as the pattern says
    real = written(tmp_path / "elsewhere", elf(), run)
    (dumped / "%core-a.7").symlink_to(real)
    (dumped / "%core-a.8").mkdir()
    os.mkfifo(dumped / "%core-a.9")
    (dumped / "%core-a.10").touch()
    before = sorted(dumped.iterdir())
    assert remove_core_dumps(run) == []
    assert sorted(dumped.iterdir()) == before
    assert real.exists()


def test_another_user_s_dump_is_left_alone(run, dumped, monkeypatch):
    path = written(dumped / "%core-a.1", elf(), run)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert core_dumps(run) == []
    monkeypatch.undo()
    assert path.exists()


@pytest.mark.parametrize("pattern", ["|/usr/bin/handler %P core\n", "@/run/socket\n", "\n", None])
def test_where_the_kernel_writes_no_file_there_is_none(run, dumped, tmp_path, monkeypatch, pattern):
    module.CORE_PATTERN.unlink()
    if pattern is not None:
        module.CORE_PATTERN.write_text(pattern)
    monkeypatch.chdir(tmp_path)
    for name in ("core", "core.1"):
        written(Path(name), elf(), run)
        written(run / name, elf(), run)
    assert core_dumps(run) == []
    module.CORE_PATTERN.write_text("core\n")
    assert len(core_dumps(run)) == 4
