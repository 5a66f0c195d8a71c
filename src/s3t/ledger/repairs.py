"""Repairs by servers in the ledger: one at a time of a run, whichever server process begins it."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import delete, select, update

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.sessions import LEASE_SECONDS
from s3t.ledger.statements import now
from s3t.processes import is_running, this_machine
from s3t.results.base import utc

INTERRUPTED = "Interrupted"
"""Error of a repair whose process was gone before its end, too often or until another one was asked for."""
_KEPT, _KEPT_SECONDS = 100, 2 * 86_400.0
"""Repairs that are remembered: the newest, and those of the last two days."""
_MOST_ATTEMPTS, _WAIT_SECONDS = 6, 1.0
"""Processes that work on a repair, at most; the unit of the waiting time, which doubles before each."""
_AFTER_END_SECONDS, _AFTER_FAILURE_SECONDS = 2.0, 60.0
_DAY_SECONDS = 86_400.0
_NO_PROCESS = 0


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A repair by a server, as those who look on see it. Times are seconds since the epoch."""

    id: str
    asked_by: str
    """Name of a token; `policy` if nobody asked."""
    hours: float | None
    """It begins no stage after so many; None: no bound."""
    host: str
    process: int
    """Number of the process that trains; before that of the server."""
    asked_at: float
    seen_at: float
    """Last time at which it told of itself."""
    ended_at: float | None
    """None until it has ended by itself."""
    stages: int
    """Stages to train."""
    trained: int
    """Stages trained so far, by the present process."""
    share: float
    """Share of the steps that are done, 0 to 1."""
    seconds: float
    """Seconds of work, of all its processes together."""
    attempts: int
    """Processes that worked on it, one after another."""
    error: str | None
    """Kind of the error that ended it; the server's log has its text."""

    @property
    def state(self) -> Literal["running", "done", "failed"]:
        """Running, done or failed. A repair whose process was killed counts as running: a server takes it up again."""
        if self.ended_at is None:
            return "running"
        return "done" if self.error is None else "failed"

    def to_json(self) -> dict[str, Any]:
        """The repair in documents; times in UTC."""
        return {
            "id": self.id,
            "state": self.state,
            "asked_by": self.asked_by,
            "hours": self.hours,
            "asked_at": utc(self.asked_at),
            "seen_at": utc(self.seen_at),
            "ended_at": utc(self.ended_at),
            "stages": self.stages,
            "trained": self.trained,
            "share": round(self.share, 4),
            "seconds": round(self.seconds, 1),
            "attempts": self.attempts,
            "error": self.error,
        }


class Repairs:
    """Repairs, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def all(self) -> list[Repair]:
        """Every repair that is remembered, the newest first."""
        rows = self._rows.connection.execute(select(schema.repairs))
        return sorted((Repair(**row._mapping) for row in rows), key=lambda repair: (-repair.asked_at, repair.id))

    def find(self, id: str) -> Repair | None:
        return next((repair for repair in self.all() if repair.id == id), None)

    def living(self) -> Repair | None:
        """The repair that runs."""
        return next((repair for repair in self.all() if self._lives(repair)), None)

    def interrupted(self) -> Repair | None:
        """The newest repair whose process is gone before its end."""
        return next((one for one in self.all() if one.ended_at is None and not self._lives(one)), None)

    def is_busy(self) -> bool:
        """True if a policy begins no repair now: one runs or is to be taken up, or the last one has just ended.

        After a failure that is longer: the next one would do no better.
        """
        repairs = self.all()
        if any(repair.ended_at is None for repair in repairs):
            return True
        if not repairs or repairs[0].ended_at is None:
            return False
        pause = _AFTER_FAILURE_SECONDS if repairs[0].error is not None else _AFTER_END_SECONDS
        return now(self._rows.connection) - repairs[0].ended_at < pause

    def hours_left(self, hours_a_day: float | None) -> float | None:
        """Hours of so many that repairs have not worked within the last 24; None: no bound."""
        if hours_a_day is None:
            return None
        since = now(self._rows.connection) - _DAY_SECONDS
        return hours_a_day - sum(repair.seconds for repair in self.all() if repair.seen_at > since) / 3600

    def begin(self, asked_by: str, *, hours: float | None, stages: int) -> Repair | None:
        """Note a new repair, as this process's; None if one runs. An interrupted one ends."""
        if self.living() is not None:
            return None
        while (old := self.interrupted()) is not None:
            self.end(old.id, process=old.process, error=INTERRUPTED)
        time, id = now(self._rows.connection), secrets.token_hex(8)
        row = {
            "id": id,
            "asked_by": asked_by,
            "hours": hours,
            "host": this_machine(),
            "process": os.getpid(),
            "asked_at": time,
            "seen_at": time,
            "stages": stages,
            "trained": 0,
            "share": 0.0,
            "seconds": 0.0,
            "attempts": 1,
        }
        self._rows.insert(schema.repairs, [row])
        for other in self.all()[_KEPT:]:
            if other.seen_at < time - _KEPT_SECONDS:
                self._rows.connection.execute(delete(schema.repairs).where(schema.repairs.c.id == other.id))
        return self.find(id)

    def take_up(self, *, stages: int, hours_left: float | None = None) -> Repair | None:
        """Make an interrupted repair this process's; None if there is none, one runs, or it has to wait.

        It waits longer after each interruption, and ends after some: what kills it would kill it again.

        Args:
            hours_left: that it may still work; None: as many as it was asked for.
        """
        repair = self.interrupted() if self.living() is None else None
        if repair is None or now(self._rows.connection) - repair.seen_at < _WAIT_SECONDS * 2**repair.attempts:
            return None
        if repair.attempts >= _MOST_ATTEMPTS:
            self.end(repair.id, process=repair.process, error=INTERRUPTED)
            return None
        values: dict[str, Any] = {
            "host": this_machine(),
            "process": os.getpid(),
            "stages": stages,
            "trained": 0,
            "share": 0.0,
        }
        if hours_left is not None:
            most = repair.seconds / 3600 + hours_left
            values["hours"] = most if repair.hours is None else min(repair.hours, most)
        self._change(repair.id, **values, attempts=repair.attempts + 1)
        return self.find(repair.id)

    def hand_over(self, id: str, *, process: int, server: int) -> bool:
        """Note the process, of this machine, that works on a repair in the place of the server that started it.

        Both note it: the server at once, for the process may die early; the process, for the server may. False if the
        repair is neither's.
        """
        repair = self.find(id)
        if repair is None or repair.ended_at is not None or repair.host != this_machine():
            return False
        if repair.process not in (process, server):
            return False
        self._change(id, process=process)
        return True

    def beat(self, id: str, *, process: int, trained: int, share: float, seconds: float) -> bool:
        """Note that a process, of this machine, works on a repair; False if it is not its own, or has ended."""
        repair = self.find(id)
        if repair is None or repair.ended_at is not None or (repair.host, repair.process) != (this_machine(), process):
            return False
        self._change(id, trained=trained, share=share, seconds=repair.seconds + seconds)
        return True

    def is_silent(self, process: int) -> bool:
        """True if a process of this machine has not told of its repair for a while."""
        since = now(self._rows.connection) - LEASE_SECONDS / 3
        return any(
            repair.ended_at is None and repair.seen_at < since
            for repair in self.all()
            if (repair.host, repair.process) == (this_machine(), process)
        )

    def note_process(self, process: int, *, gone: bool) -> None:
        """Note that a process of this machine lives, or is gone, whatever process gets its number."""
        table = schema.repairs
        mine = table.c.host == this_machine(), table.c.process == process, table.c.ended_at.is_(None)
        values = {"process": _NO_PROCESS} if gone else {"seen_at": now(self._rows.connection)}
        self._rows.connection.execute(update(table).where(*mine).values(**values))

    def end(self, id: str, *, process: int, error: str | None) -> None:
        """Note that a process, to which a repair belongs, has ended it."""
        table = schema.repairs
        time = now(self._rows.connection)
        ended = update(table).where(table.c.id == id, table.c.process == process, table.c.ended_at.is_(None))
        self._rows.connection.execute(ended.values(ended_at=time, seen_at=time, error=error))

    def _change(self, id: str, **values: Any) -> None:
        table = schema.repairs
        change = update(table).where(table.c.id == id)
        self._rows.connection.execute(change.values(seen_at=now(self._rows.connection), **values))

    def _lives(self, repair: Repair) -> bool:
        """True if its process tells of itself; on this machine, if it also is there."""
        if repair.ended_at is not None or repair.seen_at < now(self._rows.connection) - LEASE_SECONDS:
            return False
        if repair.host != this_machine():
            return True
        return repair.process != _NO_PROCESS and is_running(repair.process, seen_at=repair.seen_at)
