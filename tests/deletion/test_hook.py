"""The operator's command: started without a shell, believed at 0 alone, ended in time."""

import sys
import time

from s3t.deletion.withdrawal import run_hook
from s3t.processes import is_running

VALUES = {"name": "shard-000-ab", "path": "/srv/{name} $(touch x)/shard-000-ab", "host": "h"}


def program(code, *arguments):
    return [sys.executable, "-c", code, *arguments]


def test_it_gets_its_arguments_as_they_are_and_no_shell_reads_them(tmp_path):
    seen = tmp_path / "seen"
    code = f"import sys, pathlib; pathlib.Path({str(seen)!r}).write_text('|'.join(sys.argv[1:]))"
    assert run_hook(program(code, "{path}", "{name}@{host}", "{other}", "$HOME;"), VALUES) is None
    assert seen.read_text() == "/srv/{name} $(touch x)/shard-000-ab|shard-000-ab@h|{other}|$HOME;"
    assert [path.name for path in tmp_path.iterdir()] == ["seen"]


def test_any_end_but_0_is_a_failure():
    assert run_hook(program("raise SystemExit(7)"), VALUES) == f"{sys.executable} ended with 7"
    assert run_hook(program("import os; os.kill(os.getpid(), 9)"), VALUES) == f"{sys.executable} ended with -9"


def test_a_program_that_is_not_there_is_a_failure(tmp_path):
    assert run_hook([str(tmp_path / "none")], VALUES) == f"{tmp_path / 'none'} could not be started: " + (
        "No such file or directory"
    )
    assert "could not be started" in run_hook([str(tmp_path)], VALUES)


def test_one_that_does_not_end_is_killed_with_what_it_has_started(tmp_path):
    code = (
        "import subprocess, sys, time, pathlib\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "pathlib.Path(sys.argv[1]).write_text(str(child.pid))\n"
        "time.sleep(60)"
    )
    started = time.monotonic()
    problem = run_hook(program(code, str(tmp_path / "child")), VALUES, seconds=2.0)
    assert problem == f"{sys.executable} took longer than 2 s, and was killed"
    assert time.monotonic() - started < 30
    child = int((tmp_path / "child").read_text())
    until = time.monotonic() + 10
    while is_running(child) and time.monotonic() < until:
        time.sleep(0.05)
    assert not is_running(child)


def test_its_output_is_no_result(capfd):
    code = "import sys; print('out'); print('err', file=sys.stderr); print(sys.stdin.read())"
    assert run_hook(program(code), VALUES) is None
    captured = capfd.readouterr()
    assert captured.out == ""
    assert sorted(captured.err.split()) == ["err", "out"]
