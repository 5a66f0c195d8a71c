"""Repairs by servers in the ledger: one at a time of a run, whichever server process begins it."""

from __future__ import annotations

import os
import secrets
from typing import Any

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.sessions import LEASE_SECONDS
from s3t.ledger.state import Repair
from s3t.processes import is_running, this_machine

INTERRUPTED = "Interrupted"
"""Error of a repair whose process was gone before its end, too often or until another one was asked for."""
_KEPT, _KEPT_SECONDS = 100, 2 * 86_400.0
"""Repairs that are remembered: the newest, and those of the last two days."""
_MOST_ATTEMPTS, _WAIT_SECONDS = 6, 1.0
"""Processes that work on a repair, at most; the unit of the waiting time, which doubles before each."""
_AFTER_END_SECONDS, _AFTER_FAILURE_SECONDS = 2.0, 60.0
_DAY_SECONDS = 86_400.0
_NO_PROCESS = 0
_columns = schema.repairs.c


class Repairs:
    """Repairs, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def all(self, *conditions: Any) -> list[Repair]:
        """Every repair that is remembered, the newest first."""
        return sorted(self._rows.values(Repair, *conditions), key=lambda repair: (-repair.asked_at, repair.id))

    def find(self, id: str) -> Repair | None:
        return next(iter(self.all(_columns.id == id)), None)

    def living(self) -> Repair | None:
        """The repair that runs."""
        return next((repair for repair in self.all(_columns.ended_at.is_(None)) if self._lives(repair)), None)

    def interrupted(self) -> Repair | None:
        """The newest repair whose process is gone before its end."""
        return next((repair for repair in self.all(_columns.ended_at.is_(None)) if not self._lives(repair)), None)

    def is_busy(self) -> bool:
        """True if a policy begins no repair now: one runs or is to be taken up, or the last one has just ended.

        After a failure that is longer: the next one would do no better.
        """
        repairs = self.all()
        if any(repair.ended_at is None for repair in repairs):
            return True
        last = repairs[0] if repairs else None
        if last is None or last.ended_at is None:
            return False
        return self._rows.now() - last.ended_at < (_AFTER_END_SECONDS if last.error is None else _AFTER_FAILURE_SECONDS)

    def hours_left(self, hours_a_day: float | None) -> float | None:
        """Hours of so many that repairs have not worked within the last 24; None: no bound."""
        if hours_a_day is None:
            return None
        since = self._rows.now() - _DAY_SECONDS
        return hours_a_day - sum(repair.seconds for repair in self.all() if repair.seen_at > since) / 3600

    def begin(self, asked_by: str, *, hours: float | None, stages: int) -> Repair | None:
        """Note a new repair, as this process's; None if one runs. An interrupted one ends."""
        if self.living() is not None:
            return None
        for old in self.all(_columns.ended_at.is_(None)):
            self.end(old.id, process=old.process, error=INTERRUPTED)
        time = self._rows.now()
        repair = Repair(
            id=secrets.token_hex(8),
            asked_by=asked_by,
            hours=hours,
            host=this_machine(),
            process=os.getpid(),
            asked_at=time,
            seen_at=time,
            stages=stages,
        )
        self._rows.add(repair)
        old_ones = [(old.id,) for old in self.all()[_KEPT:] if old.seen_at < time - _KEPT_SECONDS]
        self._rows.delete_all(schema.repairs, old_ones, _columns.id)
        return repair

    def take_up(self, *, stages: int, hours_left: float | None = None) -> Repair | None:
        """Make an interrupted repair this process's; None if there is none, one runs, or it has to wait.

        It waits longer after each interruption, and ends after some: what kills it would kill it again.

        Args:
            hours_left: that it may still work; None: as many as it was asked for.
        """
        repair = self.interrupted() if self.living() is None else None
        if repair is None or self._rows.now() - repair.seen_at < _WAIT_SECONDS * 2**repair.attempts:
            return None
        if repair.attempts >= _MOST_ATTEMPTS:
            self.end(repair.id, process=repair.process, error=INTERRUPTED)
            return None
        hours = repair.hours
        if hours_left is not None:
            most = repair.seconds / 3600 + hours_left
            hours = most if hours is None else min(hours, most)
        again = {"host": this_machine(), "process": os.getpid(), "hours": hours, "attempts": repair.attempts + 1}
        self._change(repair.id, **again, stages=stages, trained=0, share=0.0)
        return self.find(repair.id)

    def hand_over(self, id: str, *, process: int, server: int) -> bool:
        """Note the process, of this machine, that works on a repair in the place of the server that started it.

        Both note it: the server at once, for the process may die early; the process, for the server may. False if the
        repair is neither's.
        """
        return self._change(
            id, _columns.host == this_machine(), _columns.process.in_((process, server)), process=process
        )

    def beat(self, id: str, *, process: int, trained: int, share: float, seconds: float) -> bool:
        """Note that a process, of this machine, works on a repair; False if it is not its own, or has ended."""
        worked = _columns.seconds + seconds
        return self._change(id, *_of(process), trained=trained, share=share, seconds=worked)

    def is_silent(self, process: int) -> bool:
        """True if a process of this machine has not told of its repair for a while."""
        since = self._rows.now() - LEASE_SECONDS / 3
        return any(repair.seen_at < since for repair in self.all(*_of(process), _columns.ended_at.is_(None)))

    def note_process(self, process: int, *, gone: bool) -> None:
        """Note that a process of this machine lives, or is gone, whatever process gets its number."""
        values = {"process": _NO_PROCESS} if gone else {"seen_at": self._rows.now()}
        self._rows.amend(schema.repairs, *_of(process), _columns.ended_at.is_(None), **values)

    def end(self, id: str, *, process: int, error: str | None) -> None:
        """Note that a process, to which a repair belongs, has ended it."""
        self._change(id, _columns.process == process, ended_at=self._rows.now(), error=error)

    def _change(self, id: str, *conditions: Any, **values: Any) -> bool:
        """Change a repair that has not ended; False if the conditions do not hold."""
        mine = _columns.id == id, _columns.ended_at.is_(None), *conditions
        return self._rows.amend(schema.repairs, *mine, seen_at=self._rows.now(), **values) == 1

    def _lives(self, repair: Repair) -> bool:
        """True if its process tells of itself; on this machine, if it also is there."""
        if repair.ended_at is not None or repair.seen_at < self._rows.now() - LEASE_SECONDS:
            return False
        if repair.host != this_machine():
            return True
        return repair.process != _NO_PROCESS and is_running(repair.process, seen_at=repair.seen_at)


def _of(process: int) -> tuple[Any, Any]:
    """The condition that a repair is that of a process of this machine."""
    return _columns.host == this_machine(), _columns.process == process
