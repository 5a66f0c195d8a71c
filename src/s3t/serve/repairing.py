"""Repairs that begin by themselves: by the run's policy, within the hours of a day, and after an interruption."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from s3t.errors import FsyncError, S3TError

if TYPE_CHECKING:
    from s3t.run import Run

_LOOK_SECONDS = 1.0


class Repairer:
    """A thread that begins what is due. Each server process has one; the ledger lets one repair run at a time.

    Args:
        run: open.
        hours_a_day: of repairs; None: no bound.
    """

    def __init__(self, run: Run, *, hours_a_day: float | None) -> None:
        self._run = run
        self._hours = hours_a_day
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="s3t-repairs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and stop the repair that this process began; a server that starts later goes on with it."""
        self._closed.set()
        self._thread.join()
        self._run.repairs.stop()

    def _work(self) -> None:
        last = ""
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                self._run.repairs.reap()
                if self._run.repairs.resume() is None:
                    self._run.repairs.begin_if_due(hours_a_day=self._hours)
                last = ""
            except FsyncError:
                return
            except S3TError as error:
                if str(error) != last:  # once, and not every second
                    logging.getLogger("s3t.serve").warning("no repair could begin: %s", error)
                last = str(error)
