"""Repairs that begin by themselves: by the run's policy, within the hours of a day, and after an interruption."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from s3t.bugs import failure_lines, log_failure
from s3t.errors import FsyncError

if TYPE_CHECKING:
    from s3t.run import Run

_LOOK_SECONDS = 1.0


class Repairer:
    """A thread that begins what is due. Each server process has one; the ledger lets one repair run at a time.

    Args:
        hours_a_day: most hours of repairs in 24; None: no bound.
    """

    def __init__(self, run: Run, *, by_policy: bool, hours_a_day: float | None) -> None:
        self._repairs = run.repairs
        self._by_policy = by_policy
        self._hours_a_day = hours_a_day
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="s3t-repairs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, and stop the repair that this process began; a server that starts later goes on with it."""
        self._closed.set()
        self._thread.join()
        self._repairs.stop()

    def _work(self) -> None:
        reported = ""
        while not self._closed.wait(_LOOK_SECONDS):
            try:
                self._repairs.attend()
                if self._repairs.resume(hours_a_day=self._hours_a_day) is None and self._by_policy:
                    self._repairs.begin_if_due(hours_a_day=self._hours_a_day)
                reported = ""
            except FsyncError:
                return
            except Exception as error:
                if (line := failure_lines(error, command="repairs")[0]) != reported:  # once, and not every second
                    log_failure(error, command="repairs")
                reported = line
