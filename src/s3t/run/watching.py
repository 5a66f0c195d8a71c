"""A run as those see it who look on for long: what has changed since, which stages are trained, depths over time."""

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
        """A counter: two states with the same number are equal, but for repairs and stages in training."""
        return self.parts.latest.snapshot().changes

    def in_training(self) -> frozenset[Stage]:
        """Stages that some process is training now."""
        with self.parts.ledger.reading() as transaction:
            return frozenset(transaction.sessions.in_training())

    def depths(self) -> tuple[DepthChange, ...]:
        """Changes of shards' depths, the oldest first; the ledger keeps the newest 10,000."""
        with self.parts.ledger.reading() as transaction:
            return tuple(transaction.depths.all())
