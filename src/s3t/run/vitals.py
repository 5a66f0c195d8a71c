"""Numbers for monitoring that a status lacks: held deletions, open processes, repairs."""

from __future__ import annotations

from dataclasses import dataclass

from s3t.ledger import Repair
from s3t.run.parts import Parts


@dataclass(frozen=True, kw_only=True)
class Vitals:
    held_deletions: int
    """Requests for deletion that wait for an operator."""
    silences: tuple[float, ...]
    """Seconds since the last heartbeat of each open run that predicts or trains and counts as alive."""
    lost_sessions: int
    """Such open runs so far that counted as dead: their lease ran out, or their process was gone."""
    repairs: tuple[Repair, ...]
    """Repairs by servers, the newest first."""


def vitals_of(parts: Parts) -> Vitals:
    """The vitals of a run. It asks the ledger once, and changes nothing."""
    with parts.ledger.reading() as transaction:
        return Vitals(
            held_deletions=len(transaction.held.waiting()),
            silences=tuple(transaction.sessions.silences()),
            lost_sessions=transaction.sessions.lost(),
            repairs=tuple(transaction.repairs.all()),
        )
