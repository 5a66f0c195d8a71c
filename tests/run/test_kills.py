"""Trainings are killed at random while records come and go: all goes on, and the bytes are those of an undisturbed run.

S3T_FAULT_SEED draws other moments.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest
from sqlalchemy import create_engine, text

import s3t
from testing import tiny
from testing.served import wait_for

SEED = int(os.environ.get("S3T_FAULT_SEED", "20261"))
WORKERS = 2
DRIVER = f"""
import sys
import s3t

def note(event):
    if isinstance(event, s3t.StageStart | s3t.StageEnd):
        with open(sys.argv[3], "a") as log:
            print(type(event).__name__, file=log)

with s3t.Run.open(sys.argv[1]) as run:
    run.train(workers={WORKERS}, engine={{"on": sys.argv[2]}}, progress=note)
"""
END_ONE = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid != pg_backend_pid() ORDER BY random() LIMIT 1"""


class Killing:
    """A run whose training is killed, and what was changed in it."""

    def __init__(self, run, on, url, log):
        self.run, self.on, self.database, self.log = run, on, create_engine(url), log
        self.present = list(tiny.text_table(24).id)
        self.changes, self.kills = [], []
        self.random = random.Random(SEED)

    def change(self):
        """Delete a record, or add two."""
        if len(self.present) < 20 or self.random.random() < 0.3:
            number = len(self.changes)
            new = tiny.text_table(2, seed=number).assign(id=[f"new{number}-{index}" for index in range(2)])
            change = ("add", new)
            self.present.extend(new.id)
        else:
            change = ("delete", [self.present.pop(self.random.randrange(len(self.present)))])
        self.changes.append(change)
        made(self.run, *change)

    def start(self):
        command = [sys.executable, "-c", DRIVER, str(self.run.path), self.on, str(self.log)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    def kill(self, driver):
        """Kill a worker, the driver, the cluster's head, or a connection to the ledger."""
        children = psutil.Process(driver.pid).children(recursive=True)
        victims = {
            "worker": [each for each in children if is_worker(each)],
            "driver": [psutil.Process(driver.pid)],
            "head": [each for each in children if "gcs_server" in each.name()],
            "connection": [None],
        }
        what = self.random.choice(sorted(name for name, found in victims.items() if found))
        if what == "connection":
            with self.database.connect() as connection:
                connection.execute(text(END_ONE))
            self.database.dispose()
        else:
            self.random.choice(victims[what]).kill()
        self.kills.append(what)

    def train(self, kills):
        while len(self.kills) < kills:
            self.change()
            with self.start() as driver:
                while driver.poll() is None and len(self.kills) < kills:
                    wait_for(lambda: driver.poll() is not None or self.run.status().workers, seconds=120)
                    time.sleep(self.random.uniform(0, 1))
                    if self.random.random() < 0.3:
                        self.change()
                    if driver.poll() is None:
                        self.kill(driver)
                        time.sleep(0.5)
                driver.communicate(timeout=300)


def is_worker(process):
    try:
        return "_Worker" in process.name() or "s3t.run.train_worker" in process.cmdline()
    except psutil.Error:
        return False


def made(run, what, change):
    if what == "add":
        run.add(change)
    else:
        run.delete(records=change)  # erased in the end, once those who train with it have let go


@pytest.mark.parametrize(
    ("on", "kills"),
    [
        pytest.param("local", 4, marks=pytest.mark.integration),
        pytest.param("local", 160, marks=pytest.mark.slow),
        pytest.param("ray", 40, marks=pytest.mark.slow),
    ],
)
def test_what_is_killed_goes_on_with_the_same_bytes(on, kills, text_model, postgres, tmp_path):
    url = postgres.create_database(f"kills_{on}_{kills}")
    recipe = tiny.recipe(
        text_model,
        ledger=url,
        sequences={"budget": 2},
        training={"epochs": 10, "threads": 1, "checkpoint_minutes": 0.002},
    )
    with s3t.Run.create(tmp_path / "killed", recipe=recipe, data=tiny.text_table()) as run:
        killing = Killing(run, on, url, tmp_path / "log")
        killing.train(kills)
        run.train()
    with s3t.Run.open(tmp_path / "killed") as run:  # which sweeps
        assert run.audit(replay=1).ok
        assert (run.status().missing, run.status().unfinished) == (0, ())
    with s3t.Run.create(tmp_path / "left-alone", recipe=recipe | {"ledger": None}, data=tiny.text_table()) as run:
        for change in killing.changes:
            made(run, *change)
        run.train()
    assert tiny.artifacts(tmp_path / "killed") == tiny.artifacts(tmp_path / "left-alone")
    told = (tmp_path / "log").read_text().split()
    begun, ended = told.count("StageStart"), told.count("StageEnd")
    print(f"\n{Counter(killing.kills)}, {len(killing.changes)} changes; {begun} stages begun, {ended} ended")
    # A kill costs the stages in the workers' hands, a change those that it overtook.
    assert begun - ended <= WORKERS * (kills + len(killing.changes))
