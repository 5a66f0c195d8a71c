"""A process that says when it is in the midst of its work, and there waits: `python -m tests.run.sleeper RUN WORK`."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import s3t
from s3t.ledger.locks import RunLock, file_lock, hold
from tests.run.meanwhile import Meanwhile

ROOT = Path(__file__).resolve().parents[2]


class Sleeper:
    """Such a process, stopped by SIGSTOP in the midst of its work."""

    def __init__(self, run: Path, *, work: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.run.sleeper", str(run), work],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "working\n"
        self._stop(run)
        while _is_read(run):  # a reader that is stopped within its read keeps removed rows in the log, as SQLite must
            os.kill(self._process.pid, signal.SIGCONT)
            self._stop(run)

    def _stop(self, run: Path) -> None:
        with _nobody_writing(run):
            os.kill(self._process.pid, signal.SIGSTOP)
            os.waitpid(self._process.pid, os.WUNTRACED)  # returns once it stands still

    def wake(self) -> dict[str, Any]:
        """Let it go on, to its end; what it says then."""
        os.kill(self._process.pid, signal.SIGCONT)
        said, _ = self._process.communicate("\n", timeout=60)
        assert self._process.returncode == 0
        return json.loads(said)


@contextmanager
def _nobody_writing(run: Path) -> Iterator[None]:
    """No thread of any process is in the midst of a write of the ledger, or has the run's lock, while within.

    One that is stopped there holds up all other writers, as would one that hangs there: that is SQLite's bargain, and
    not what is tried here.
    """
    with (
        hold(RunLock(file_lock(run / "lock"))),
        closing(sqlite3.connect(run / "ledger.sqlite", timeout=60)) as ledger,
    ):
        ledger.execute("BEGIN IMMEDIATE")
        yield
        ledger.rollback()


def _is_read(run: Path) -> bool:
    """True if a process is in the midst of a read of the ledger."""
    with closing(sqlite3.connect(run / "ledger.sqlite", timeout=0)) as ledger:
        busy, _, _ = ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return bool(busy)


def wait() -> None:
    print("working", flush=True)
    sys.stdin.readline()


def main() -> None:
    folder, work = sys.argv[1:]
    with s3t.Run.open(folder) as run:
        if work == "predict":
            answer = run.predict(["w1 w30", "w2"], progress=Meanwhile(wait))
            said: dict[str, Any] = {"generation": answer.generation, "keys": [member.key for member in answer.members]}
        else:
            report = run.train(progress=Meanwhile(wait))
            said = {"discarded": report.discarded, "stages": len(report.stages)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
