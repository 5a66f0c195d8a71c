"""Observation of an open run: counter of changes, stages in training, history of depths."""

from __future__ import annotations

from dataclasses import dataclass

from s3t.ledger.depths import DepthChange
from s3t.run.parts import Parts
from s3t.stages import Stage


@dataclass(frozen=True)
class Watch:
    """The changes of one run. Asking is cheap, and erases nothing. Safe to share among threads."""

    parts: Parts

    def changes(self) -> int:
        """Counter of the ledger's changes. Repairs, requests that are held or refused, and stages in
        training do not raise it."""
        return self.parts.latest.snapshot().changes

    def in_training(self) -> frozenset[Stage]:
        """Stages that some process is training now."""
        with self.parts.ledger.reading() as transaction:
            return frozenset(transaction.sessions.in_training())

    def depths(self) -> tuple[DepthChange, ...]:
        """Changes of shards' depths, the oldest first; the ledger keeps at least the newest 10,000."""
        with self.parts.ledger.reading() as transaction:
            return tuple(transaction.depths.all())
