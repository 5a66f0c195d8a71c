"""Each fault does to a small program what it says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.build import build
from tests.faults.shim import read_log

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.integration

# Points 1 to 9. Each step that is refused says so, and the next is tried.
PROGRAM = """
import os, sys
from pathlib import Path
from tests.faults.shim import Shim

folder, log, kind, point = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
shim = Shim()
shim.log_changes(folder.with_name("changes"))
shim.arm([folder], log=log, kind=kind, point=point, seed=3)

def step(name, action):
    try:
        print(name, action())
    except OSError as error:
        print(name, error.strerror)

def write(path, content):
    descriptor = os.open(path, os.O_WRONLY)
    try:
        return os.write(descriptor, content)
    finally:
        os.close(descriptor)

def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.fsync(descriptor)
    finally:
        os.close(descriptor)

a, b = folder / "a", folder / "b"
step("create", lambda: os.close(os.open(a, os.O_CREAT | os.O_WRONLY)))
step("write", lambda: write(a, b"x" * 1000))
step("sync", lambda: sync(a))
step("rename", lambda: os.rename(a, b))
step("sync-folder", lambda: sync(folder))
step("write-again", lambda: write(b, b"y" * 1000))
step("truncate", lambda: os.truncate(b, 10))
step("mkdir", lambda: os.mkdir(folder / "c"))
step("unlink", lambda: os.unlink(b))
(folder.with_name("elsewhere")).write_text("not watched")
print("count", shim.count())
"""
STEPS = ["create", "write", "sync", "rename", "sync-folder", "write-again", "truncate", "mkdir", "unlink"]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def start(library):
    """Run code with the shim; the finished process."""

    def start(code, *arguments):
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env=os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            capture_output=True,
            text=True,
        )

    return start


@pytest.fixture
def program(start, tmp_path):
    """Run the program with a fault; its exit status and what each step gave."""
    folder = tmp_path / "watched"
    folder.mkdir()

    def run(kind, point):
        done = start(PROGRAM, folder, tmp_path / "log", kind, point)
        assert not done.stderr
        return done.returncode, dict(line.split(" ", 1) for line in done.stdout.splitlines())

    run.folder, run.log = folder, tmp_path / "log"
    return run


def test_without_a_fault_every_change_is_a_point_and_done_and_what_is_made_or_written_anywhere_is_noted(program):
    status, told = program("count", 0)
    assert status == 0
    assert told["count"] == "9"
    met = [entry.type for entry in read_log(program.log) if entry.mark == "P"]
    assert met == [name.removesuffix("-folder").removesuffix("-again") for name in STEPS]
    assert [entry.number for entry in read_log(program.log) if entry.mark == "D"] == list(range(1, 10))
    changes = [line.split("\t") for line in (program.folder.parent / "changes").read_text().splitlines()]
    inside = [("open", "a"), ("open", "a"), ("rename", "b"), ("open", "b"), ("open", "b"), ("mkdir", "c")]
    noted = [[what, f"{program.folder}/{name}"] for what, name in inside]
    assert changes == [*noted, ["open", f"{program.folder.parent}/elsewhere"]]


def test_a_program_that_knows_nothing_of_the_shim_is_watched_through_the_environment(library, tmp_path):
    environment = os.environ | {"LD_PRELOAD": str(library), "S3T_CHANGE_LOG": str(tmp_path / "changes")}
    subprocess.run(["touch", "made"], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "changes").read_text() == f"open\t{tmp_path}/made\n"


@pytest.mark.parametrize("point", [1, 2, 3, 4, 8])
@pytest.mark.parametrize(("kind", "done"), [("kill", 0), ("kill-after", 1)])
def test_killed_before_or_after_a_point(program, kind, done, point):
    status, told = program(kind, point)
    assert status == -9
    assert list(told) == STEPS[: point - 1]
    assert sum(entry.mark == "D" for entry in read_log(program.log)) == point - 1 + done


def test_a_torn_write_leaves_a_first_part(program):
    assert program("torn", 2)[0] == -9
    content = (program.folder / "a").read_bytes()
    assert 0 < len(content) < 1000
    assert set(content) == {ord("x")}


def test_a_short_write_says_how_much_it_wrote(program):
    status, told = program("short", 2)
    assert status == 0
    assert 0 < int(told["write"]) < 1000
    assert told["write-again"] == "1000"


def test_a_full_disk_stays_full_and_lets_go_what_needs_no_space(program):
    status, told = program("full", 3)
    assert status == 0
    refused = [name for name, what in told.items() if what == "No space left on device"]
    assert refused == ["write-again", "mkdir"]
    assert told["unlink"] == "None"


@pytest.mark.parametrize(
    ("kind", "point", "failed"),
    [("eio", 2, "write"), ("fsync", 3, "sync"), ("fsync", 5, "sync-folder"), ("eio", 3, "write-again")],
)
def test_one_call_fails_once_or_the_next_one_that_can_fail_so(program, kind, point, failed):
    status, told = program(kind, point)
    assert status == 0
    assert [name for name, what in told.items() if what == "Input/output error"] == [failed]


def test_a_connection_to_postgresql_is_lost(start, tmp_path):
    """Anything that listens on the port stands for the server; psycopg sends by the same calls."""
    code = """
import socket, sys
from pathlib import Path
from tests.faults.shim import Shim
server = socket.create_server(("127.0.0.1", 0))
port = server.getsockname()[1]
shim = Shim()
shim.arm([Path("/nowhere")], log=Path(sys.argv[1]), kind="connection", point=2, port=port)
client = socket.create_connection(("127.0.0.1", port))
peer, _ = server.accept()
client.send(b"first")
try:
    client.send(b"second")
except ConnectionResetError:
    print("reset")
peer.settimeout(5)
print(peer.recv(5), peer.recv(5))
"""
    done = start(code, tmp_path / "log")
    assert done.stdout.splitlines() == ["reset", "b'first' b''"], done.stderr
