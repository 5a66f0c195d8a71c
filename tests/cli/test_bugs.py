"""What s3t did not foresee: told as a bug, without a word of a record; and what only looks like one."""

import ast
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

import s3t
from s3t import bugs
from s3t.cli import app
from s3t.ledger import presence
from s3t_server import repairs
from tests.cli.typed import program

PRIVATE = "Jane Roe has the flu"


def fail(*_, **__):
    try:
        raise KeyError(PRIVATE)
    except KeyError as error:
        raise ValueError(f"{PRIVATE} again") from error


@pytest.fixture
def bug(monkeypatch):
    """Whoever opens a run meets a bug, whose text, and whose cause's, hold a record's."""
    monkeypatch.setattr(s3t.Run, "open", fail)


def test_a_bug_is_told_with_what_to_send_and_nothing_of_a_record(bug):
    ended = program("delete", "run", "--record", PRIVATE, "--json")
    assert ended.status == 1
    error = json.loads(ended.stdout)["error"]
    assert set(error) == {"kind", "problems", "bug"}
    assert error["kind"] == "ValueError"
    assert "this is a bug of s3t (ValueError at test_bugs.py:" in error["problems"][0]
    sent = error["bug"]
    assert (sent["version"], sent["command"]) == (s3t.__version__, "delete")
    assert [line for line in sent["trace"] if not line.startswith(" ")] == ["KeyError", "ValueError"]
    assert any("s3t/cli/delete.py" in line and line.endswith(" delete") for line in sent["trace"])
    assert error["problems"][0] in ended.stderr
    assert all(f"bug: {line}" in ended.stderr for line in sent["trace"])
    assert PRIVATE not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


def test_without_json_nothing_goes_to_stdout_and_the_whole_traceback_to_who_asks_for_it(bug, monkeypatch):
    ended = program("status", "run")
    assert (ended.status, ended.stdout) == (1, "")
    assert "s3t: this is a bug of s3t" in ended.stderr
    monkeypatch.setenv("S3T_DEBUG", "1")
    assert f"KeyError: '{PRIVATE}'" in program("status", "run").stderr


def test_a_bug_before_the_command_is_told_the_same_way(monkeypatch):
    monkeypatch.setattr(app, "app_of", fail)
    ended = program("status", PRIVATE, "--json")
    assert (ended.status, json.loads(ended.stdout)["error"]["kind"]) == (1, "ValueError")
    assert PRIVATE not in ended.stdout + ended.stderr


def test_a_recursion_without_end_is_told_in_a_few_lines_and_a_want_of_memory_is_no_bug(monkeypatch):
    def endless(*_, **__):
        endless()

    def hungry(*_, **__):
        raise MemoryError

    monkeypatch.setattr(s3t.Run, "open", endless)
    ended = program("status", "run")
    assert (ended.status, "RecursionError" in ended.stderr) == (1, True)
    assert ended.stderr.count("\n") < 50
    monkeypatch.setattr(s3t.Run, "open", hungry)
    ended = program("status", "run")
    assert (ended.status, "no memory was left" in ended.stderr, "bug of s3t" in ended.stderr) == (1, True, False)


def test_a_bug_in_a_thread_is_told_without_its_text(monkeypatch, capsys):
    monkeypatch.setattr(threading, "excepthook", app._report_thread)
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    told = capsys.readouterr().err
    assert "bug: ValueError" in told
    assert PRIVATE not in told


def test_exits_on_purpose_and_results_pass_the_net():
    assert program("--version").stdout == f"s3t {s3t.__version__}\n"
    assert program("nonsense").status == 2
    assert program("sequences", "--slices", 3, "--budget", 2, "--json").status == 0


@pytest.mark.integration
def test_a_result_that_finds_no_room_or_no_reader_is_no_bug():
    command = [sys.executable, "-m", "s3t", "sequences", "--slices", "3", "--budget", "2", "--json"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "the result could not be written to stdout: No space left on device" in done.stderr
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ("", 0)


def test_a_name_that_is_no_text_leaves_the_document_json():
    ended = program("status", "run\udcff", "--json")
    assert ended.status == 2
    assert json.loads(ended.stdout)["error"]["where"].endswith("run\udcff")


def foreign_errors():
    """What libraries raise about a value, with the value in the message."""
    yield from (ValueError(PRIVATE), KeyError(PRIVATE), TypeError(PRIVATE), RuntimeError(PRIVATE), OSError(PRIVATE))
    yield pa.ArrowInvalid(f"CSV parse error: {PRIVATE}")
    yield UnicodeDecodeError("utf-8", PRIVATE.encode(), 0, 1, PRIVATE)
    try:
        fail()
    except ValueError as error:
        yield error


@pytest.mark.parametrize("error", [*foreign_errors()], ids=lambda error: type(error).__name__)
def test_a_log_has_no_value_that_an_error_quotes(error, caplog):
    for command in ("serve", "repairs", "repair 17", "gateway"):
        bugs.log_failure(error, command=command)
    assert type(error).__name__ in caplog.text
    assert PRIVATE not in caplog.text


def test_no_log_of_ours_takes_the_text_of_an_exception_with_it():
    """`exc_info` prints the text of whatever was raised: only where nothing shows it, at the level of debugging."""
    for path in (Path(s3t.__file__).parent).rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and any(word.arg == "exc_info" for word in call.keywords):
                assert getattr(call.func, "attr", "") == "debug", f"{path}:{call.lineno}"
            if isinstance(call, ast.Attribute) and call.attr == "exception":
                assert "getLogger" not in ast.unparse(call.value), path


def test_threads_repairs_and_servers_log_no_value_of_a_record(bug, monkeypatch, caplog, capsys):
    monkeypatch.setattr(sys, "argv", ["repair", "run"])
    monkeypatch.setattr(repairs, "Run", s3t.Run)
    stdin, (ours, theirs) = os.dup(0), socket.socketpair()
    with ours, theirs:
        os.dup2(theirs.fileno(), 0)
        with pytest.raises(SystemExit):
            repairs.main()
    os.dup2(stdin, 0)
    os.close(stdin)
    looks = iter([False, True])
    event = SimpleNamespace(wait=lambda _seconds: next(looks))  # set at the second look
    presence._repeat(lambda: SimpleNamespace(poll_seconds=0.0), event, fail)
    assert caplog.text.count("ValueError") >= 2
    assert PRIVATE not in caplog.text + capsys.readouterr().err
