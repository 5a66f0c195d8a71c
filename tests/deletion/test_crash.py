"""Runs that are open beside a process that is killed amid a deletion, for real: SIGKILL in a subprocess.

`test_erasing_goes_on.py` has every step, `tests/faults` every call, also of training.
"""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import s3t
from testing import tiny
from testing.served import serving
from tests.deletion.runs import names_left

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]

KILL = """
import os, signal, sys
import s3t
from s3t.store.artifacts import Artifacts
from s3t.store.slices import Slices

def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

where, folder, record = sys.argv[1:]
{"Artifacts": Artifacts, "Slices": Slices}[where].erase = kill
s3t.Run.open(folder).delete(records=[record])
print("not killed")
"""


def killed(where, folder):
    """Delete r3 in a subprocess that kills itself before it erases something."""
    done = subprocess.run(
        [sys.executable, "-c", KILL, where, str(folder), "r3"], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == -9, (done.stdout, done.stderr)


def test_a_handle_that_was_open_meanwhile_serves_without_the_record_at_once(trained):
    before = trained.predict(["w1 w2"]).members
    killed("Artifacts", trained.path)
    after = trained.predict(["w1 w2"])
    assert after.generation == 1
    assert after.members != before
    assert trained.audit().ok


@pytest.mark.parametrize("where", ["Artifacts", "Slices"])
def test_a_server_beside_the_killed_process_erases_and_answers_without_the_record(trained, where):
    trained.close()
    with serving(trained.path, open_scopes=("predict", "audit"), repair=False) as client:
        ask = lambda: client.post("/v1/predict", json={"inputs": ["w1 w2"]}).json()  # noqa: E731
        before = ask()
        killed(where, trained.path)
        after, until = ask(), time.monotonic() + 30
        assert after["generation"] == 1
        assert after["members"] != before["members"]
        while client.get("/v1/deletions/1").json()["state"] != "erased":
            assert time.monotonic() < until
            time.sleep(0.05)
        assert "r3" not in names_left(trained.path)
        with s3t.Run.open(trained.path) as run:
            named = set(run.inventory().alive.values())
            assert {name.rpartition("/")[2].partition(".")[0] for name in tiny.artifacts(trained.path)} == named
