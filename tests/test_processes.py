"""Processes of one machine are told apart from those of another that has its name, and from later ones of a number."""

import os
import subprocess
import sys
import time

import pytest

from s3t.processes import is_running, this_machine

CODE = "from s3t.processes import this_machine; print(this_machine())"


def test_processes_of_one_machine_say_the_same():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == this_machine()


def test_another_namespace_of_processes_is_another_machine():
    """Two containers may have one name and one kernel; each has a process 7."""
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", CODE]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() != this_machine()
    assert done.stdout.partition("_")[0] == this_machine().partition("_")[0]


def test_a_process_runs_until_it_has_ended():
    process = subprocess.Popen(["sleep", "60"])
    assert is_running(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(process.pid)  # ended, though nobody has asked how
    process.wait()
    assert not is_running(process.pid)


def test_a_process_that_began_after_it_was_seen_is_another():
    assert is_running(os.getpid(), seen_at=time.time())
    assert not is_running(os.getpid(), seen_at=time.time() - 1e6)
