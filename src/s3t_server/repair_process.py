"""A repair in a process of its own, at low priority: `python -m s3t_server.repair_process RUN ID`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from s3t.bugs import log_failure
from s3t.events import Event, StageEnd, WorkStart, WorkStep
from s3t.ledger import Ledger
from s3t.ledger.work import Leaving, Uses
from s3t.program import exit_on_sigterm, set_up_process
from s3t.run import Run

NICE = "S3T_REPAIR_NICE"
"""Environment variable: the `nice` value of a repair, from 0 (as the server) to 19 (the lowest priority)."""
_NICE = 10
_BEAT_SECONDS = 1.0
_MOST_FAILURES = 30
"""Beats that the ledger may refuse one after another."""


class Heartbeat(threading.Thread):
    """Tells the ledger every second that the repair lives, and how far it is; counts, and no loss.

    Ends the process if the repair is another process's by now, or the ledger refuses for long: then nobody can know.
    """

    def __init__(self, ledger: Ledger, id: str) -> None:
        super().__init__(name="s3t-heartbeat", daemon=True)
        self._ledger = ledger
        self._id = id
        self._total = self._done = self._trained = 0
        self._stopped = threading.Event()
        self._told_at = time.monotonic()

    def hear(self, event: Event) -> None:
        """Count the repair's progress."""
        match event:
            case WorkStart():
                self._total, self._done = event.total, 0
            case WorkStep():
                self._done += event.count
            case StageEnd():
                self._trained += 1

    def run(self) -> None:
        failures = 0
        while not self._stopped.wait(_BEAT_SECONDS):
            try:
                alive, failures = self.beat(), 0
            except Exception:  # the thread must go on: else nobody knows that the process lives
                alive, failures = failures < _MOST_FAILURES, failures + 1
            if not alive:
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def beat(self) -> bool:
        """Tell the ledger; False if the repair is another process's, or has ended."""
        now = time.monotonic()
        seconds, share = now - self._told_at, min(1.0, self._done / self._total) if self._total else 0.0
        with self._ledger.writing() as transaction:
            ours = transaction.repairs.beat(
                self._id, process=os.getpid(), trained=self._trained, share=share, seconds=seconds
            )
        self._told_at = now
        return ours

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        self.beat()


def main() -> None:
    """Repair the run, and note it in its ledger. Told to stop, it notes no end: a server takes it up again."""
    folder, id = sys.argv[1:]
    try:
        with Run.open(folder) as run:
            run.parts.upkeep.is_background = True
            _repair(run, run.parts.ledger, id)
    except Exception as failed:
        log_failure(failed, command=f"repair {id}")
        sys.exit(1)


def asked_nice() -> int:
    """The `nice` value of a repair, 0 to 19: S3T_REPAIR_NICE, or the default if that is no number."""
    given = os.environ.get(NICE, "")
    return min(int(given), 19) if given.isdecimal() else _NICE


def _repair(run: Run, ledger: Ledger, id: str) -> None:
    with ledger.writing() as transaction:
        ours = transaction.repairs.hand_over(id, process=os.getpid(), server=os.getppid())
        repair = transaction.repairs.find(id)
    if not ours or repair is None:
        return
    heartbeat, error = Heartbeat(ledger, id), None
    heartbeat.start()
    with run.parts.presence.working(ledger.snapshot(), Uses(), leaving=Leaving.NEVER):
        pass  # starts the session's threads, which write to the ledger, while the priority is the server's
    os.nice(asked_nice())  # on Linux of this thread, and of those that it starts from here on
    hours = None if repair.hours is None else repair.hours - repair.seconds / 3600
    try:
        if hours is None or hours > 0:
            run.repair(hours=hours, progress=heartbeat.hear)
    except Exception as failed:
        error = type(failed).__name__
        raise
    finally:
        heartbeat.stop()
        if error is not None or sys.exc_info()[0] is None:
            with ledger.writing() as transaction:
                transaction.repairs.end(id, process=os.getpid(), error=error)


if __name__ == "__main__":
    set_up_process()
    exit_on_sigterm()
    main()
