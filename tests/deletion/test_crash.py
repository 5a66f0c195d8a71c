"""A process that is killed at any point of a deletion or of training, for real: SIGKILL in a subprocess."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import s3t
from testing import tiny
from testing.served import serving

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]

KILL = """
import os, signal, sys
import s3t
from s3t.deletion import protocol
from s3t.ledger import Transaction
from s3t.store.slices import Slices
from s3t.store.artifacts import Artifacts

def kill(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

def after(function):
    def wrapped(*args, **kwargs):
        function(*args, **kwargs)
        kill()
    return wrapped

point, folder, record = sys.argv[1:]
if point == "before acceptance":
    Transaction.accept = kill
if point == "within acceptance":
    Transaction.accept = after(Transaction.accept)
if point == "after acceptance":
    Artifacts.erase = kill
if point == "after erasing artifacts":
    Artifacts.erase = after(Artifacts.erase)
if point == "while putting the next version":
    import pathlib
    pathlib.Path.replace = kill
if point == "after putting the next version":
    Slices.put = after(Slices.put)
if point == "before erasing the old version":
    Slices.erase = kill
if point == "after erasing the old version":
    Slices.erase = after(Slices.erase)
if point == "before noting the end":
    Transaction.settle = kill
if point == "within noting the end":
    Transaction.settle = after(Transaction.settle)
run = s3t.Run.open(folder)
run.delete(records=[record])
print("not killed")
"""

BEFORE = ("before acceptance", "within acceptance")
AFTER = (
    "after acceptance",
    "after erasing artifacts",
    "while putting the next version",
    "after putting the next version",
    "before erasing the old version",
    "after erasing the old version",
    "before noting the end",
    "within noting the end",
)


def killed_deletion(point, folder, record):
    """Delete in a subprocess that kills itself at a point."""
    done = subprocess.run(
        [sys.executable, "-c", KILL, point, str(folder), record], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == -9, (done.stdout, done.stderr)


@pytest.mark.parametrize("point", BEFORE)
def test_killed_before_acceptance_the_run_is_as_it_was(point, trained):
    before, artifacts = trained.status().to_json(), tiny.artifacts(trained.path)
    killed_deletion(point, trained.path, "r3")
    with s3t.Run.open(trained.path) as reopened:
        assert reopened.status().to_json() == before
        assert tiny.artifacts(trained.path) == artifacts
        assert reopened.audit().ok
        assert reopened.delete(records=["r3"]).deleted == 1


@pytest.mark.parametrize("point", AFTER)
def test_killed_after_acceptance_the_deletion_finishes_itself(point, trained, text_model, tmp_path):
    trained.close()  # else it would finish it, too, and be at it still
    killed_deletion(point, trained.path, "r3")
    with s3t.Run.open(trained.path) as reopened:
        assert reopened.status().generation == 1
        assert reopened.delete(records=["r3"]).already == ("r3",)
        assert reopened.audit().ok
        assert list((trained.path / "tmp").iterdir()) == []
        assert not any(b"r3" in file.read_bytes() for file in trained.path.glob("slices/**/*.parquet"))
        reopened.repair()
    table = tiny.text_table()
    with s3t.Run.create(tmp_path / "twin", recipe=tiny.recipe(text_model), data=table[table.id != "r3"]) as twin:
        twin.train()
        assert tiny.artifacts(trained.path) == tiny.artifacts(twin.path)


def test_a_handle_that_was_open_meanwhile_serves_without_the_record_at_once(trained):
    """After another process was killed right after acceptance, nobody uses the record again."""
    before = trained.predict(["w1 w2"]).members
    killed_deletion("after acceptance", trained.path, "r3")
    after = trained.predict(["w1 w2"])
    assert after.generation == 1
    assert after.members != before
    assert trained.audit().ok


@pytest.mark.parametrize("point", ["after acceptance", "after erasing artifacts", "before erasing the old version"])
def test_a_server_beside_the_killed_process_erases_and_answers_without_the_record(trained, point):
    trained.close()
    with serving(trained.path, open_scopes=("predict", "audit"), repair=False) as client:
        ask = lambda: client.post("/v1/predict", json={"inputs": ["w1 w2"]}).json()  # noqa: E731
        before = ask()
        killed_deletion(point, trained.path, "r3")
        after, until = ask(), time.monotonic() + 30
        assert after["generation"] == 1
        assert after["members"] != before["members"]
        while client.get("/v1/deletions/1").json()["state"] != "erased":
            assert time.monotonic() < until
            time.sleep(0.05)
        assert not any(b"r3" in file.read_bytes() for file in trained.path.glob("slices/**/*.parquet"))
        with s3t.Run.open(trained.path) as run:
            named = set(run.inventory().alive.values())
            assert {name.rpartition("/")[2].partition(".")[0] for name in tiny.artifacts(trained.path)} == named


KILL_TRAINING = """
import os, signal, sys
import s3t
from s3t.store.artifacts import Artifacts

put, stored = Artifacts.put, []

def counting(self, *args):
    put(self, *args)
    stored.append(args)
    if len(stored) == 5:
        os.kill(os.getpid(), signal.SIGKILL)

Artifacts.put = counting
s3t.Run.open(sys.argv[1]).train()
"""


def test_training_that_was_killed_goes_on_where_it_was(trained, text_model, tmp_path):
    run = s3t.Run.create(tmp_path / "killed", recipe=tiny.recipe(text_model), data=tiny.text_table())
    run.close()
    done = subprocess.run([sys.executable, "-c", KILL_TRAINING, str(run.path)], capture_output=True, cwd=ROOT)
    assert done.returncode == -9, done.stderr
    with s3t.Run.open(run.path) as reopened:
        # The fifth was stored, but not yet committed: the sweep takes it for nobody's.
        assert len(reopened.inventory().alive) == 4
        report = reopened.train()
        assert len(report.stages) == 18 - 4
        assert tiny.artifacts(run.path) == tiny.artifacts(trained.path)
