"""A repair in a process of its own, at low priority: `python -m s3t.run.repair_process RUN ID`."""

from __future__ import annotations

import logging
import os
import sys
import time

from s3t.bugs import Bug
from s3t.errors import S3TError
from s3t.program import exit_on_sigterm, set_up_process
from s3t.run import Run
from s3t.run.parts import Parts
from s3t.training_events import Event, StageEnd

_NICE = 10
_EVERY_SECONDS = 0.5


class NotedProgress:
    """Progress that is noted in the ledger, at most twice a second. It notes counts, and no loss."""

    def __init__(self, parts: Parts, id: str) -> None:
        self._parts = parts
        self._id = id
        self._total = self._done = self._trained = 0
        self._noted_at = 0.0

    def start(self, what: str, total: int) -> None:
        """Begin to count."""
        self._total, self._done = total, 0

    def note(self, what: str) -> None:
        """Do nothing: stages tell of themselves."""

    def advance(self, count: int) -> None:
        """Count steps."""
        self._done += count
        if time.monotonic() - self._noted_at > _EVERY_SECONDS:
            self._write()

    def hear(self, event: Event) -> None:
        """Count stages."""
        if isinstance(event, StageEnd):
            self._trained += 1
            self._write()

    def finish(self) -> None:
        """Note what is done."""
        self._write()

    def _write(self) -> None:
        self._noted_at = time.monotonic()
        share = min(1.0, self._done / self._total) if self._total else 0.0
        with self._parts.ledger.writing() as transaction:
            transaction.repairs.change(self._id, trained=self._trained, share=share)


def main() -> None:
    """Repair the run, and note it in its ledger."""
    folder, id = sys.argv[1:]
    os.nice(_NICE)
    with Run.open(folder) as run:
        parts = run._parts
        with parts.ledger.writing() as transaction:
            transaction.repairs.change(id, process=os.getpid())
            repair = transaction.repairs.find(id)
        if repair is None or repair.ended_at is not None:
            return
        hours = None if repair.hours is None else repair.hours - (time.time() - repair.asked_at) / 3600
        error = None
        try:
            if hours is None or hours > 0:
                run.repair(hours=hours, progress=NotedProgress(parts, id))
        except Exception as failed:  # told to stop (SystemExit), it does not end: a server takes it up again
            error = type(failed).__name__
            for line in [str(failed)] if isinstance(failed, S3TError) else Bug(failed, command="repair").lines():
                logging.getLogger("s3t.serve").error("repair %s: %s", id, line)
        with parts.ledger.writing() as transaction:
            transaction.repairs.end(id, error=error)


if __name__ == "__main__":
    set_up_process()
    exit_on_sigterm()
    main()
