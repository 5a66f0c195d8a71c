"""Repairs in processes of their own, beside a server that goes on answering. Only one runs at a time, wherever.

What a repair has trained is kept, whatever ends it; one that was interrupted goes on with what is still missing.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass, field

from s3t.deletion.policy import repair_due
from s3t.ledger import Repair
from s3t.run.parts import Parts

_DAY = 86_400.0
_STOPPING_SECONDS = 10.0
_AFTER_END_SECONDS, _AFTER_FAILURE_SECONDS = 2.0, 60.0


@dataclass
class Repairs:
    """Repairs of one run that this process begins, and those that others have begun."""

    parts: Parts
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def all(self) -> tuple[Repair, ...]:
        """Those that are remembered, the newest first."""
        with self.parts.ledger.reading() as transaction:
            return tuple(transaction.repairs.all())

    def find(self, id: str) -> Repair | None:
        """The repair of an id."""
        with self.parts.ledger.reading() as transaction:
            return transaction.repairs.find(id)

    def begin(self, *, asked_by: str, hours: float | None = None) -> Repair | None:
        """Begin a repair; None if one runs.

        Args:
            asked_by: name of who asks.
            hours: begin no stage after so many; None: no bound.

        Raises:
            MovedError: the folder is a copy.
            KeyDestroyedError: nothing can be trained any more.
        """
        self.parts.check_changeable()
        self.parts.check_trainable()
        missing = len(self.parts.latest.inventory(self.parts.upkeep.erase_due()).missing())
        with self.parts.ledger.writing() as transaction:
            repair = transaction.repairs.begin(asked_by, hours=hours, stages=missing)
        if repair is not None:
            self._start(repair)
        return repair

    def resume(self) -> Repair | None:
        """Go on with a repair whose process is gone; None if there is none."""
        with self.parts.ledger.reading() as transaction:
            if transaction.repairs.interrupted() is None:
                return None
        with self.parts.ledger.writing() as transaction:
            repair = transaction.repairs.take_up()
        if repair is not None:
            self._start(repair)
        return repair

    def begin_if_due(self, *, hours_a_day: float | None) -> Repair | None:
        """Begin a repair if the run's policy asks for one and the day has hours left; None if not.

        Args:
            hours_a_day: of repairs within the last 24 hours, whoever asked for them; None: no bound.
        """
        with self.parts.ledger.reading() as transaction:
            last = next(iter(transaction.repairs.all()), None)
            if transaction.repairs.living() is not None or (last is not None and _is_fresh(last)):
                return None
        inventory = self.parts.latest.inventory(self.parts.latest.snapshot())
        if not repair_due(self.parts.present_recipe.deletion.repair, inventory):
            return None
        left = None if hours_a_day is None else hours_a_day - self._hours_of_today()
        if left is not None and left <= 0:
            return None
        return self.begin(asked_by="policy", hours=left)

    def reap(self) -> None:
        """Let go of a process that has ended."""
        if self._process is not None and self._process.poll() is not None:
            self._process = None

    def stop(self) -> None:
        """Stop the repair that this process began; a server that starts later goes on with it."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(_STOPPING_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def _start(self, repair: Repair) -> None:
        command = [sys.executable, "-m", "s3t.run.repair_process", str(self.parts.layout.root), repair.id]
        # A session of its own: an interrupt from the keyboard is the server's to hear.
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, start_new_session=True)  # noqa: S603

    def _hours_of_today(self) -> float:
        since = time.time() - _DAY
        spans = ((max(each.asked_at, since), each.ended_at or each.seen_at) for each in self.all())
        return sum(max(0.0, end - begin) for begin, end in spans) / 3600


def _is_fresh(last: Repair) -> bool:
    """True if the last repair has ended a moment ago, or failed not long ago: the next one would do no better."""
    pause = _AFTER_FAILURE_SECONDS if last.error is not None else _AFTER_END_SECONDS
    return last.ended_at is not None and time.time() - last.ended_at < pause
