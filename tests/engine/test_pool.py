"""Worker processes, with real ones that have no model: what they share, how they fail, and that none is left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from s3t import errors
from s3t.engine import Placement, Processes, pool, run_on
from s3t.events import StageStart, WorkNote, WorkStep, silent
from s3t.processes import is_running
from s3t.store import disk
from tests.engine.small_worker import STAGES

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]


class Heard:
    """What a listener was told."""

    def __init__(self, action=lambda: None):
        self.notes, self.count, self.action = [], 0, action

    def __call__(self, event):
        match event:
            case StageStart():
                self.notes.append(str(event.stage))
            case WorkNote():
                self.notes.append(event.what)
            case WorkStep():
                self.count += event.count
                self.action()


def run(what, folder, *more, placements=None, progress=None, **how):
    arguments = [what, str(folder), *more]
    workers = Processes("tests.engine.small_worker", arguments, placements or [Placement()] * 2)
    return run_on(workers, progress=progress or silent, **how)


def left(folder):
    """Processes of workers that still run."""
    return [number for number in numbers(folder) if psutil.pid_exists(number)]


def numbers(folder):
    return [int(path.read_text()) for path in folder.glob("*.pid")]


def wait_until(true, seconds=30):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_they_share_what_is_missing_and_one_listener_has_it_all(tmp_path):
    heard = Heard()
    assert run("share", tmp_path, placements=[Placement()] * 3, progress=heard) == 0
    assert sorted(heard.notes) == sorted(map(str, STAGES))
    assert heard.count == sum(stage.depth for stage in STAGES)
    assert len(list(tmp_path.glob("*.pid"))) == 3
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("TrainingError", errors.TrainingError, "it did not work; do something else"),
        ("RecipeError", errors.RecipeError, "2 problems in recipe.yaml:\n  - rank is 0\n  - epochs is -1"),
        ("ValueError", ValueError, "it did not work; do something else"),
        ("Peculiar", RuntimeError, "PeculiarError: 1 and 2"),  # it cannot be sent
    ],
)
def test_the_error_of_one_is_raised_as_it_is_and_the_others_stop(tmp_path, capfd, kind, error, message):
    with pytest.raises(error) as caught:
        run("fail", tmp_path, kind)
    assert type(caught.value) is error
    assert str(caught.value) == message
    assert any("small_worker.py" in note for note in caught.value.__notes__)  # where it came up
    assert left(tmp_path) == []
    assert (tmp_path / "1.tidy").exists()  # it ended as on an error
    assert capfd.readouterr().err == ""


def test_after_a_failed_fsync_of_a_worker_this_process_does_nothing_more(tmp_path):
    with pytest.raises(errors.FsyncError, match="it did not work"):
        run("fail", tmp_path, "FsyncError")
    with pytest.raises(errors.FsyncError, match="by a worker process"):
        disk.refuse_after_failed_fsync()


@pytest.mark.parametrize(
    ("how", "words"),
    [("kill", r"was killed by SIGKILL, exit code -9; .*fewer"), ("exit", r"ended with exit status 3; .*stderr")],
)
def test_one_that_ends_without_a_word_is_named_with_what_to_do_and_the_others_stop(tmp_path, how, words):
    which = r"worker \d of 2 \(process \d+, at stage \(0\) of shard 1\) "
    with pytest.raises(errors.WorkerError, match=f"{which}{words}.*run the same command again"):
        run("die", tmp_path, how)
    assert left(tmp_path) == []


def test_one_that_cannot_be_started_is_an_error_and_leaves_none(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no python"))
    with pytest.raises(errors.WorkerError, match="worker 1 of 2 could not be started: No such file"):
        run("tell", tmp_path)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_whatever_stops_the_parent_stops_them(tmp_path, error):
    def stop():
        raise error

    begun = time.monotonic()
    with pytest.raises(error):
        run("forever", tmp_path, progress=Heard(stop))
    assert left(tmp_path) == []
    assert time.monotonic() - begun < 60

    with pytest.raises(error):
        run("forever", tmp_path, meanwhile=lambda: stop() if (tmp_path / "2.begun").exists() else None)
    assert left(tmp_path) == []


def test_one_that_does_not_stop_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "GRACE_SECONDS", 0.5)

    def stop():
        if len(list(tmp_path.glob("*.begun"))) == 2:
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        run("quiet", tmp_path, "deaf", meanwhile=stop)
    assert left(tmp_path) == []


def test_each_has_its_seat_hears_no_keyboard_and_writes_to_stderr(tmp_path, capfd):
    first, *_, last = sorted(os.sched_getaffinity(0))
    heard, cores = Heard(), {"a": first, "b": last}
    placements = [Placement(cores=(core,), environment={"OWN": name}) for name, core in cores.items()]
    assert run("tell", tmp_path, placements=placements, progress=heard) == 2 + 3  # the results are added up
    assert sorted(heard.notes) == sorted(repr(([core], name, True)) for name, core in cores.items())
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    written = capfd.readouterr()
    assert (written.out, written.err) == ("", "on stdout\n" * 2)


PARENT = """
import sys
from s3t.engine import Placement, Processes, run_on
from s3t.events import silent
run_on(Processes("tests.engine.small_worker", sys.argv[1:], [Placement()] * 2), progress=silent)
"""


@pytest.fixture
def parent(request, tmp_path):
    """A process of a session of its own, as a terminal would start it, with two workers at work."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, request.param[0], str(tmp_path), *request.param[1:]],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # the tests may run where it is ignored
        text=True,
    )
    wait_until(lambda: len(list(tmp_path.glob("*.begun"))) == 2)
    yield process
    process.kill()
    process.wait()
    for number in numbers(tmp_path):
        if is_running(number):  # a test has failed
            os.kill(number, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("parent", [["forever"]], indirect=True)
def test_an_interrupt_from_the_keyboard_ends_all_at_once_with_one_word_about_it(parent, tmp_path):
    os.killpg(parent.pid, signal.SIGINT)
    begun = time.monotonic()
    said = parent.communicate(timeout=30)[1]
    assert time.monotonic() - begun < pool.GRACE_SECONDS
    assert said.count("KeyboardInterrupt") == 1
    assert left(tmp_path) == []
    assert len(list(tmp_path.glob("*.tidy"))) == 2


@pytest.mark.parametrize("parent", [["forever"], ["quiet"], ["quiet", "deaf"]], indirect=True)
def test_a_parent_that_is_killed_leaves_no_worker(parent, tmp_path):
    assert len(left(tmp_path)) == 2
    parent.kill()
    parent.wait()
    wait_until(lambda: not any(map(is_running, numbers(tmp_path))), seconds=20)
