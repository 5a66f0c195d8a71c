"""Who uses the run: open handles in any process on any host, the generation each has moved to, what each trains."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, select, update

from s3t.ledger import schema
from s3t.ledger.condemning import condemn
from s3t.ledger.rows import Rows
from s3t.ledger.statements import now, of_stage, prefix_text, stage_at
from s3t.processes import is_running, this_machine
from s3t.stages import Stage

LEASE_SECONDS = 30.0
"""A session of another machine that was not seen for so long is taken for dead; it beats six times as often."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """One open run that predicts or trains."""

    name: str = field(default_factory=lambda: secrets.token_hex(16))
    host: str = field(default_factory=this_machine)
    process: int = field(default_factory=os.getpid)


_living: set[str] = set()
"""Sessions of this process that have not ended. One that could not tell the ledger of its end is dead all the same."""


def ended(session: Session) -> None:
    """Note that a session of this process has ended."""
    _living.discard(session.name)


class Sessions:
    """Sessions and claims, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._connection = rows.connection

    def seen(self, session: Session, *, generation: int) -> None:
        """Note that a session lives, and uses nothing older than a generation."""
        row = {
            "session": session.name,
            "host": session.host,
            "process": session.process,
            "generation": generation,
            "seen_at": now(self._connection),
        }
        self._rows.upsert(schema.sessions, [row])
        if session.process == os.getpid():
            _living.add(session.name)

    def beat(self, session: Session) -> bool:
        """Note that a session lives; False if it was taken for dead meanwhile."""
        table = schema.sessions
        beat = update(table).where(table.c.session == session.name).values(seen_at=now(self._connection))
        return self._connection.execute(beat).rowcount == 1

    def end(self, names: Collection[str]) -> None:
        """Forget sessions and their claims."""
        self._drop_claims(schema.claims.c.session.in_(list(names)))
        self._connection.execute(delete(schema.sessions).where(schema.sessions.c.session.in_(list(names))))

    def bury(self) -> None:
        """Forget sessions whose process is gone, and those of other machines that were not seen for a lease."""
        oldest = now(self._connection) - LEASE_SECONDS
        rows = self._connection.execute(select(schema.sessions)).all()
        if dead := [row.session for row in rows if _is_dead(row, oldest)]:
            self.end(dead)

    def behind(self, generation: int) -> int:
        """Living sessions that may still use something older than a generation."""
        oldest = now(self._connection) - LEASE_SECONDS
        rows = self._connection.execute(select(schema.sessions).where(schema.sessions.c.generation < generation)).all()
        return sum(not _is_dead(row, oldest) for row in rows)

    def claimed(self) -> dict[Stage, str]:
        """What is being trained, and by which session."""
        return {stage_at(row.shard, row.prefix): row.session for row in self._connection.execute(select(schema.claims))}

    def claim(self, stage: Stage, session: Session, *, again: bool = False) -> bool:
        """Take a stage for a session to train; False if one has it, perhaps in another thread of the same session.

        Args:
            stage: the stage.
            session: who.
            again: take it also if the session has it by the ledger: it could not be given back the last time.
        """
        self.bury()
        table = schema.claims
        # A session that slept until it was buried may still claim; that counts once it is known again.
        living = select(table.c.session).join(schema.sessions, schema.sessions.c.session == table.c.session)
        holder = self._connection.execute(living.where(*of_stage(table, stage))).scalar_one_or_none()
        if holder is not None and not (again and holder == session.name):
            return False
        row = {"shard": stage.shard, "prefix": prefix_text(stage), "session": session.name}
        self._rows.upsert(table, [row])
        return True

    def announce(self, stage: Stage, key: str, session: Session) -> bool:
        """Note the key under which a session is about to put a stage's artifact; False if it has no claim any more.

        If it never commits the stage, whoever ends its claim knows what is left in the store.
        """
        mine = update(schema.claims).where(*_claim_of(stage, session)).values(key=key)
        return self._connection.execute(mine).rowcount == 1

    def announced(self) -> set[tuple[int, str]]:
        """Artifacts, (shard, key), that living sessions are putting."""
        table = schema.claims
        return {(row.shard, row.key) for row in self._connection.execute(select(table).where(table.c.key.is_not(None)))}

    def has_announced(self, stage: Stage, key: str, session: Session) -> bool:
        """Whether a session has a claim on a stage, and has announced that key."""
        mine = select(schema.claims.c.key).where(*_claim_of(stage, session))
        return self._connection.execute(mine).scalar_one_or_none() == key

    def release(self, stage: Stage, session: Session) -> bool:
        """Give a claim back; False if it was the session's no more."""
        return self._drop_claims(*_claim_of(stage, session)) == 1

    def _drop_claims(self, *conditions: Any) -> int:
        """Remove claims; what was announced and not committed is to be erased. How many there were."""
        table, stages = schema.claims, schema.stages
        rows = self._connection.execute(select(table).where(*conditions)).all()
        self._connection.execute(delete(table).where(*conditions))
        put = {(row.shard, row.key) for row in rows if row.key is not None}
        kept = {(row.shard, row.key) for row in self._rows.read_in(stages, stages.c.key, [key for _, key in put])}
        condemn(self._rows, artifacts=put - kept)
        return len(rows)

    def release_all_but(self, stages: Collection[Stage], session: Session) -> None:
        """Give back every claim of a session but those on some stages."""
        mine = {stage for stage, name in self.claimed().items() if name == session.name}
        for stage in mine.difference(stages):
            self.release(stage, session)


def _claim_of(stage: Stage, session: Session) -> tuple[Any, ...]:
    """The condition that a row of `claims` is a session's, on a stage."""
    return (*of_stage(schema.claims, stage), schema.claims.c.session == session.name)


def _is_dead(row: Any, oldest: float) -> bool:
    """Whether a session has ended without a word. On this machine that can be seen; one that sleeps is waited for."""
    if row.host != this_machine():
        return bool(row.seen_at < oldest)
    if row.process == os.getpid():
        return row.session not in _living
    return not is_running(row.process, seen_at=row.seen_at)
