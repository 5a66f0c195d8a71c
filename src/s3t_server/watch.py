"""Changes of an open run, for its page and for monitoring. Reading them is cheap and erases nothing."""

from __future__ import annotations

from dataclasses import dataclass

from s3t.core import Stage
from s3t.ledger import DepthChange, Repair
from s3t.run import Run


@dataclass(frozen=True)
class Watch:
    """The changes of one run. Safe to share among threads."""

    run: Run

    def changes(self) -> int:
        """Counter of the ledger's changes. Repairs, requests that are held or refused, and stages in training do not
        raise it."""
        return self.run.parts.latest.snapshot().changes

    def in_training(self) -> frozenset[Stage]:
        """Stages that some process is training now."""
        with self.run.parts.ledger.reading() as transaction:
            return frozenset(transaction.sessions.in_training())

    def depths(self) -> tuple[DepthChange, ...]:
        """Changes of shards' depths, the oldest first; the ledger keeps at least the newest 10,000."""
        with self.run.parts.ledger.reading() as transaction:
            return tuple(transaction.history.depths())

    def vitals(self) -> Vitals:
        """Numbers for monitoring that a status lacks, of one transaction."""
        with self.run.parts.ledger.reading() as transaction:
            return Vitals(
                held_deletions=len(transaction.held.waiting()),
                silences=tuple(transaction.sessions.silences()),
                lost_sessions=transaction.sessions.lost(),
                repairs=tuple(transaction.repairs.all()),
            )


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
