"""Tables of a run's servers: requests for deletion that wait for approval, and repairs.

Of a request that is held the ledger has the tokens of its names alone, and only while it waits. Repairs are one at a
time of a run, whichever server process begins it.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import or_, select

from s3t.ledger import schema
from s3t.ledger.rows import Rows, damaged
from s3t.ledger.sessions import LEASE_SECONDS
from s3t.processes import is_running, this_machine
from s3t.results.base import utc
from s3t.results.serving import Held, Repair

HOUR = 3600.0
"""Seconds over which rates are counted."""
_ID_BYTES = 8
_ID = re.compile("[0-9a-f]{16}")

INTERRUPTED = "Interrupted"
"""Error of a repair whose process was gone before its end, too often or until another one was asked for."""
_KEPT, _KEPT_SECONDS = 100, 2 * 86_400.0
"""Repairs that are remembered: the newest, and those of the last two days."""
_MOST_ATTEMPTS, _WAIT_SECONDS = 6, 1.0
"""Processes that work on a repair, at most; the unit of the waiting time, which doubles before each."""
_AFTER_END_SECONDS, _AFTER_FAILURE_SECONDS = 0.5, 60.0
GOES_ON_SECONDS = 60.0
"""A process waits so long for its next repair, with the model in memory."""
_ROW_SECONDS = 3600.0
"""A repair that began earlier does not go on: all of its hours count as of the last day, however long it has been."""
_DAY_SECONDS = 86_400.0
_NO_PROCESS = 0


class HeldRequests:
    """Held requests, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def find(self, id: str) -> Held | None:
        """The held request of an id; None also for what cannot be one, and what PostgreSQL would not take as text."""
        return self._rows.find(Held, id=id) if _ID.fullmatch(id) else None

    def waiting(self) -> list[Held]:
        """Requests without a decision, the newest first."""
        return self._rows.all(Held, decided_at=None)

    def approved(self) -> frozenset[str]:
        """Ids of requests that are approved and not carried out; unchecked, so that a damaged row stops no answer."""
        table = schema.held
        left = select(table.c.id).where(table.c.approved == 1, table.c.done_at.is_(None))
        return frozenset(self._rows.connection.execute(left).scalars())

    def same(self, caller: str, *, request: bytes | None, content: bytes) -> Held | None:
        """Earlier request that is not done: with this idempotency key; without a key, the caller's waiting one for the
        same names."""
        if request is not None:
            return self._rows.find(Held, done_at=None, request=request)
        return self._rows.find(Held, done_at=None, asked_by=caller, content=content, decided_at=None)

    def names_of(self, held: Held) -> tuple[frozenset[bytes], frozenset[bytes]]:
        """Tokens of the records and of the subjects of a request; none once it was carried out or refused."""
        rows = self._rows.read(schema.held_names, held=held.id)
        if len(rows) != held.names and held.state in ("held", "approved"):
            raise damaged(schema.held_names, held.names - len(rows))
        return (
            frozenset(row.token for row in rows if not row.is_subject),
            frozenset(row.token for row in rows if row.is_subject),
        )

    def add(self, held: Held, *, records: Collection[bytes], subjects: Collection[bytes]) -> None:
        """Note a request that has to wait, and the tokens of its names."""
        self._rows.add(held)
        names = [(token, 0) for token in sorted(records)] + [(token, 1) for token in sorted(subjects)]
        rows = ({"held": held.id, "token": token, "is_subject": is_subject} for token, is_subject in names)
        self._rows.insert(schema.held_names, rows)

    def decide(self, id: str, *, by: str, approved: bool, reason: str | None = None) -> None:
        """Note a decision; only the first counts. A refusal also removes the request's names."""
        values = {"decided_by": by, "decided_at": self._rows.now(), "approved": int(approved), "reason": reason}
        self._rows.amend(schema.held, id=id, decided_at=None, to=values)
        if approved:
            self._rows.note_change()  # open runs look whether it is carried out
        else:
            self._rows.delete(schema.held_names, held=id)

    def note_done(self, id: str, *, generation: int | None) -> None:
        """Note that an approved request was carried out, in the transaction that does it. Its names go."""
        self._rows.note_change()
        values = {"done_at": self._rows.now(), "deletion": generation}
        self._rows.amend(schema.held, id=id, done_at=None, to=values)
        self._rows.delete(schema.held_names, held=id)

    def rates(self, caller: str, *, but: str) -> tuple[int, dict[int, int]]:
        """Records that requests of a caller, and of all callers from each shard, have taken within the last hour.

        `but` is the mark of a request that does not count: it is repeated.
        """
        table = schema.admitted
        since = self._rows.now() - HOUR
        by_caller, by_shard = 0, dict[int, int]()
        for row in self._rows.read(table, table.c.mark != but, table.c.asked_at >= since):
            by_caller += row.records if row.asked_by == caller else 0
            by_shard[row.shard] = by_shard.get(row.shard, 0) + row.records
        return by_caller, by_shard

    def note_admitted(self, caller: str, losses: Mapping[int, int], *, mark: str) -> None:
        """Count the records of each shard that a request is about to take; of one with the same mark, once.

        Counts of more than an hour ago go.
        """
        table, time = schema.admitted, self._rows.now()
        self._rows.delete(table, table.c.asked_at < time - HOUR)
        self._rows.upsert(
            schema.admitted,
            (
                {"mark": mark, "shard": shard, "asked_by": caller, "asked_at": time, "records": count}
                for shard, count in losses.items()
            ),
        )


class Repairs:
    """Repairs, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def living(self) -> Repair | None:
        return next(filter(self._lives, self._rows.all(Repair, ended_at=None)), None)

    def interrupted(self) -> Repair | None:
        """The newest repair whose process is gone before its end."""
        return next((repair for repair in self._rows.all(Repair, ended_at=None) if not self._lives(repair)), None)

    def is_busy(self, own: int | None = None) -> bool:
        """True if a policy begins no repair now: one runs or is to be taken up, the last one has just ended, or was the
        policy's and its process, which is not this server's `own`, waits for the next one.

        After a failure that is longer: the next one would do no better.
        """
        end, since = schema.repairs.c.ended_at, self._rows.now() - max(_AFTER_FAILURE_SECONDS, GOES_ON_SECONDS)
        repairs = self._rows.all(Repair, or_(end.is_(None), end > since))
        ended = [repair.ended_at for repair in repairs if repair.ended_at is not None]
        if not repairs or len(ended) < len(repairs):
            return bool(repairs)
        last, ago = repairs[0], self._rows.now() - ended[0].timestamp()
        if last.error is not None:
            return ago < _AFTER_FAILURE_SECONDS
        waits = (last.asked_by, last.host) == ("policy", this_machine()) and last.process not in (own, os.getpid())
        if waits and is_running(last.process, seen_at=time.time() - ago):
            return ago < GOES_ON_SECONDS
        return ago < _AFTER_END_SECONDS

    def hours_left(self, hours_a_day: float | None) -> float | None:
        """Hours of so many that repairs have not worked within the last 24; None: no bound."""
        if hours_a_day is None:
            return None
        lately = self._rows.all(Repair, schema.repairs.c.seen_at > self._rows.now() - _DAY_SECONDS)
        return hours_a_day - sum(repair.seconds for repair in lately) / 3600

    def begin(self, asked_by: str, *, hours: float | None, stages: int) -> Repair | None:
        """Note a new repair, as this process's; None if one runs. An interrupted one ends."""
        if self.living() is not None:
            return None
        time = self._rows.now()
        self._rows.amend(schema.repairs, ended_at=None, to={"ended_at": time, "seen_at": time, "error": INTERRUPTED})
        repair = Repair(
            id=secrets.token_hex(_ID_BYTES),
            asked_by=asked_by,
            hours=hours,
            host=this_machine(),
            process=os.getpid(),
            asked_at=utc(time),
            seen_at=utc(time),
            stages=stages,
        )
        self._rows.add(repair)
        old = (each for each in self._rows.all(Repair)[_KEPT:] if each.seen_at.timestamp() < time - _KEPT_SECONDS)
        self._rows.remove(schema.repairs, ({"id": each.id} for each in old))
        return repair

    def go_on(self, asked_by: str, *, hours: float | None, stages: int) -> Repair | None:
        """Make the last repair this process's again, with more stages, if it was asked for by the same and has ended
        well within the last minute: where people are deleted all day, each deletion would leave a row."""
        last = next(iter(self._rows.all(Repair)), None)
        if last is None or last.ended_at is None or (last.asked_by, last.error) != (asked_by, None):
            return None
        now = self._rows.now()
        if now - last.ended_at.timestamp() > GOES_ON_SECONDS or now - last.asked_at.timestamp() > _ROW_SECONDS:
            return None
        to = {
            "ended_at": None,
            "seen_at": now,
            "host": this_machine(),
            "process": os.getpid(),
            "attempts": 1,
            "hours": None if hours is None else hours + last.seconds / 3600,
            "stages": last.trained + stages,
            "share": 0.0,
        }
        self._rows.amend(schema.repairs, id=last.id, to=to)
        return self._rows.find(Repair, id=last.id)

    def take_up(self, *, stages: int, hours_left: float | None = None) -> Repair | None:
        """Make an interrupted repair this process's; None if there is none, one runs, or it has to wait.

        It waits longer after each interruption, and ends after some: what kills it would kill it again. Without
        `hours_left` it may work for as many as it was asked for.
        """
        repair = self.interrupted() if self.living() is None else None
        if repair is None or self._rows.now() - repair.seen_at.timestamp() < _WAIT_SECONDS * 2**repair.attempts:
            return None
        if repair.attempts >= _MOST_ATTEMPTS:
            self.end(repair.id, process=repair.process, error=INTERRUPTED)
            return None
        hours = repair.hours
        if hours_left is not None:
            most = repair.seconds / 3600 + hours_left
            hours = most if hours is None else min(hours, most)
        again = {"host": this_machine(), "process": os.getpid(), "hours": hours, "attempts": repair.attempts + 1}
        self._change({**again, "stages": stages, "trained": 0, "share": 0.0}, id=repair.id)
        return self._rows.find(Repair, id=repair.id)

    def hand_over(self, id: str, *, process: int, server: int) -> bool:
        """Note the process, of this machine, that works on a repair in the place of the server that started it.

        Both note it: the server at once, for the process may die early; the process, for the server may. False if the
        repair is neither's.
        """
        either = schema.repairs.c.process.in_((process, server))
        return self._change({"process": process}, either, id=id, host=this_machine())

    def beat(self, id: str, *, process: int, trained: int, share: float, seconds: float) -> bool:
        """Note that a process, of this machine, works on a repair; False if it is not its own, or has ended."""
        repair = self._rows.find(Repair, id=id)
        worked = {"trained": trained, "share": share, "seconds": seconds + (repair.seconds if repair else 0.0)}
        return self._change(worked, id=id, host=this_machine(), process=process)

    def is_silent(self, process: int) -> bool:
        """True if a process of this machine has not told of its repair for a while."""
        earlier = schema.repairs.c.seen_at < self._rows.now() - LEASE_SECONDS / 3
        return self._rows.find(Repair, earlier, ended_at=None, host=this_machine(), process=process) is not None

    def note_process(self, process: int, *, gone: bool) -> None:
        """Note that a process of this machine lives, or is gone, whatever process gets its number."""
        values = {"process": _NO_PROCESS} if gone else {"seen_at": self._rows.now()}
        self._rows.amend(schema.repairs, ended_at=None, host=this_machine(), process=process, to=values)

    def end(self, id: str, *, process: int, error: str | None) -> None:
        """Note that a process, to which a repair belongs, has ended it."""
        self._change({"ended_at": self._rows.now(), "error": error}, id=id, process=process)

    def _change(self, values: Mapping[str, Any], *conditions: Any, **equal: Any) -> bool:
        """Change a repair that has not ended; False if there is none of those."""
        to = {**values, "seen_at": self._rows.now()}
        return self._rows.amend(schema.repairs, *conditions, ended_at=None, **equal, to=to) == 1

    def _lives(self, repair: Repair) -> bool:
        """True if its process tells of itself; on this machine, if it also is there."""
        silent = self._rows.now() - repair.seen_at.timestamp()
        if repair.ended_at is not None or silent > LEASE_SECONDS:
            return False
        if repair.host != this_machine():
            return True
        return repair.process != _NO_PROCESS and is_running(repair.process, seen_at=time.time() - silent)
