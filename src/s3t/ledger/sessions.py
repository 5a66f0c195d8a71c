"""Sessions: open runs in any process on any host, the generation that each has moved to, and the stages it trains."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection
from typing import Any

from s3t.core import Stage
from s3t.ledger import schema
from s3t.ledger.rows import LOST_SESSIONS, Rows
from s3t.ledger.schema import of_stage, stage_at
from s3t.ledger.state import Session
from s3t.processes import is_running, this_machine
from s3t.results.base import utc
from s3t.results.state import Worker

LEASE_SECONDS = 30.0
"""A session of another machine counts as dead after this time without a heartbeat; it sends six in that time."""

NO_ANSWERS = 2**31 - 1
"""In place of a generation: the session gives no answers."""

LOG = logging.getLogger("s3t.sessions")
"""Leases that are lost, at level INFO: servers show it, commands do not."""

_open_here: set[str] = set()
"""Sessions of this process that have not ended, whether or not the ledger has their end."""


def note_ended(session: Session) -> None:
    _open_here.discard(session.name)


class Sessions:
    """Sessions and their claims on stages, within one transaction."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def enter(self, session: Session, *, generation: int, answers: int | None = None) -> None:
        """Note that a session lives.

        No answer of a generation older than `answers` leaves it; `NO_ANSWERS` if it gives none; None: as `generation`.
        """
        row = {
            "session": session.name,
            "host": session.host,
            "process": session.process,
            "generation": generation,
            "seen_at": self._rows.now(),
            "answers": generation if answers is None else answers,
        }
        self._rows.upsert(schema.sessions, [row])
        if session.process == os.getpid():
            _open_here.add(session.name)

    def beat(self, session: Session) -> bool:
        """Note that a session lives; False if it counted as dead meanwhile."""
        return self._rows.amend(schema.sessions, session=session.name, to={"seen_at": self._rows.now()}) == 1

    def end(self, names: Collection[str]) -> None:
        """Remove sessions and their claims."""
        self._drop_claims(schema.claims.c.session.in_(names))
        self._rows.remove(schema.sessions, ({"session": name} for name in names))

    def end_dead(self) -> list[Any]:
        """Remove sessions whose process is gone, and sessions of other machines without a heartbeat for a lease.

        Returns the rows of those that live.
        """
        rows = self._rows.read(schema.sessions)
        living = self._living(rows)
        if dead := [row for row in rows if row not in living]:
            self.end([row.session for row in dead])
        here = this_machine(), os.getpid()
        lost = [row for row in dead if (row.host, row.process) != here]  # those of this process have ended in order
        if lost:
            self._rows.write_note(LOST_SESSIONS, to=self.lost() + len(lost))
        for row in lost:
            LOG.info(
                "lease lost: process %s of %s counts as dead; deletions wait for it no more", row.process, row.host
            )
        return living

    def lost(self) -> int:
        """Number of sessions so far that have counted as dead without a word of their own."""
        return self._rows.note(LOST_SESSIONS)

    def silences(self) -> list[float]:
        """Seconds since the last heartbeat of each living session."""
        time = self._rows.now()
        return [time - row.seen_at for row in self._sessions()]

    def count_behind(self, generation: int, *, answering: bool = False) -> int:
        """Number of living sessions that may still use, or even answer with, something older than a generation."""
        column = schema.sessions.c.answers if answering else schema.sessions.c.generation
        return len(self._sessions(column < generation))

    def waited_for(self, generation: int) -> list[str]:
        """Why a deletion is not effective, or not erased: in words, each living session that is behind it."""
        time = self._rows.now()
        return [
            f"process {row.process} of {row.host}, which "
            f"{'may have an answer on its way' if row.answers < generation else 'has not let go of what it used'} "
            f"and was heard of {max(0.0, time - row.seen_at):.0f} seconds ago: it ends this when it goes on; if it "
            "hangs, end it"
            for row in self._sessions(schema.sessions.c.generation < generation)
        ]

    def _sessions(self, *conditions: Any) -> list[Any]:
        """Rows of sessions that live."""
        return self._living(self._rows.read(schema.sessions, *conditions))

    def _living(self, rows: list[Any]) -> list[Any]:
        """The rows of sessions that are not gone without a notice.

        On this machine a session's process tells, also if it sleeps. One of another has to have been heard of.
        """
        now = self._rows.now() if rows else 0.0
        ahead = now - time.time()  # of the ledger's clock

        def lives(row: Any) -> bool:
            if row.host != this_machine():
                return bool(row.seen_at >= now - LEASE_SECONDS)
            if row.process == os.getpid():
                return row.session in _open_here
            return is_running(row.process, seen_at=row.seen_at - ahead)

        return [row for row in rows if lives(row)]

    def claims(self) -> dict[Stage, str]:
        """Stages that are being trained, and the name of the session of each."""
        return {stage_at(row.shard, row.prefix): row.session for row in self._rows.read(schema.claims)}

    def workers(self) -> list[Worker]:
        """The stages that living sessions train, and where; the oldest first."""
        living, found = {row.session: row for row in self._sessions()}, []
        for row in self._rows.read(schema.claims):
            if (by := living.get(row.session)) is not None:
                shard, prefix, kind, _, seen = stage_at(row.shard, row.prefix)
                where = {"host": by.host.rsplit("_", 2)[0], "process": by.process, "device": row.device}
                of = {"shard": shard, "prefix": prefix, "kind": kind, "seen": seen}
                found.append(Worker(**of, **where, since=utc(row.since)))
        return sorted(found, key=lambda worker: worker.since)

    def claim(self, stage: Stage, session: Session, *, device: str = "cpu") -> bool:
        """Take a stage for a session to train on a device; False if another living session has it.

        True also if the ledger names this session already: it could not give the stage back. Threads of one session
        agree in `Presence.claimed`.
        """
        # A session that slept until it was removed may still claim; that counts once it is entered again.
        others = {row.session for row in self.end_dead()} - {session.name}
        if any(row.session in others for row in self._rows.read(schema.claims, **of_stage(stage))):
            return False
        self._drop_claims(**_claim_of(stage, session))  # one that could not be given back may have announced something
        row = {**of_stage(stage), "session": session.name, "device": device, "since": self._rows.now()}
        self._rows.upsert(schema.claims, [row])
        return True

    def announce(self, stage: Stage, key: str | None, session: Session) -> bool:
        """Note the key under which a session is about to put a stage's artifact; False if it has lost its claim.

        If it never commits the stage, the end of the claim condemns the artifact.
        """
        return self._rows.amend(schema.claims, **_claim_of(stage, session), to={"key": key}) == 1

    def announced(self) -> set[tuple[int, str]]:
        """Artifacts, (shard, key), that living sessions are putting."""
        table = schema.claims
        return {(row.shard, row.key) for row in self._rows.read(table, table.c.key.is_not(None))}

    def has_announced(self, stage: Stage, key: str, session: Session) -> bool:
        """True if a session has a claim on a stage, and has announced that key."""
        return bool(self._rows.read(schema.claims, **_claim_of(stage, session), key=key))

    def release(self, stage: Stage, session: Session) -> bool:
        """Give a claim back; False if the session had lost it."""
        return self._drop_claims(**_claim_of(stage, session)) == 1

    def release_all_but(self, stages: Collection[Stage], session: Session) -> None:
        """Give back every claim of a session except those on some stages."""
        for stage, name in self.claims().items():
            if name == session.name and stage not in stages:
                self.release(stage, session)

    def _drop_claims(self, *conditions: Any, **equal: Any) -> int:
        """Remove claims, and condemn artifacts that were announced and not committed; returns the number of claims."""
        rows = self._rows.read(schema.claims, *conditions, **equal)
        self._rows.delete(schema.claims, *conditions, **equal)
        announced = [row for row in rows if row.key is not None]
        put = {(row.shard, row.key) for row in announced}
        kept = {
            (stage.shard, stage.key)
            for row in announced
            for stage in self._rows.read(schema.stages, shard=row.shard, prefix=row.prefix)
        }
        self._rows.condemn(artifacts=put - kept)
        return len(rows)


def _claim_of(stage: Stage, session: Session) -> dict[str, Any]:
    return {**of_stage(stage), "session": session.name}
