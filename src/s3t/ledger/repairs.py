"""Repairs by servers in the ledger: one at a time of a run, whichever server process begins it."""

from __future__ import annotations

import os
import secrets
from typing import Any

from sqlalchemy import delete, select, update

from s3t.ledger import schema
from s3t.ledger.rows import Rows
from s3t.ledger.sessions import LEASE_SECONDS
from s3t.ledger.state import Repair
from s3t.ledger.statements import now
from s3t.processes import is_running, this_machine

_KEPT = 100
"""Repairs that are remembered, the newest."""


class Repairs:
    """Repairs, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def all(self) -> list[Repair]:
        """Every repair that is remembered, the newest first."""
        rows = self._rows.connection.execute(select(schema.repairs))
        return sorted((Repair(**row._mapping) for row in rows), key=lambda repair: (-repair.asked_at, repair.id))

    def find(self, id: str) -> Repair | None:
        """The repair of an id."""
        return next((repair for repair in self.all() if repair.id == id), None)

    def living(self) -> Repair | None:
        """The repair that runs."""
        return next((repair for repair in self.all() if self._lives(repair)), None)

    def interrupted(self) -> Repair | None:
        """The newest repair whose process is gone before its end."""
        return next((one for one in self.all() if one.ended_at is None and not self._lives(one)), None)

    def begin(self, asked_by: str, *, hours: float | None, stages: int) -> Repair | None:
        """Note a new repair, as this process's; None if one runs."""
        if self.living() is not None:
            return None
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
        }
        self._rows.insert(schema.repairs, [row])
        for old in self.all()[_KEPT:]:
            self._rows.connection.execute(delete(schema.repairs).where(schema.repairs.c.id == old.id))
        return self.find(id)

    def take_up(self) -> Repair | None:
        """Make an interrupted repair this process's; None if there is none, or one runs."""
        repair = self.interrupted() if self.living() is None else None
        if repair is not None:
            self.change(repair.id, host=this_machine(), process=os.getpid())
            return self.find(repair.id)
        return None

    def change(self, id: str, **values: Any) -> None:
        """Note that a repair lives, and what has become of it."""
        table = schema.repairs
        self._rows.connection.execute(
            update(table).where(table.c.id == id).values(seen_at=now(self._rows.connection), **values)
        )

    def end(self, id: str, *, error: str | None) -> None:
        """Note that a repair has ended by itself."""
        self.change(id, ended_at=now(self._rows.connection), error=error)

    def forget(self) -> None:
        """Forget every repair: they are another run's."""
        self._rows.connection.execute(delete(schema.repairs))

    def _lives(self, repair: Repair) -> bool:
        if repair.ended_at is not None:
            return False
        if repair.host == this_machine():
            return is_running(repair.process, seen_at=repair.seen_at)
        return repair.seen_at >= now(self._rows.connection) - LEASE_SECONDS
