"""Running computations of a session: what each uses, and whether its result may be on its way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from s3t.core import Place, Stage
from s3t.ledger.ledger import Ledger
from s3t.ledger.state import SliceState, Snapshot


class Overtaken(Exception):  # noqa: N818
    """A deletion has taken what a computation uses; its result may not be used."""


@dataclass(frozen=True, kw_only=True)
class Uses:
    """Stages and slices that a computation uses. It may go on while all of them are alive and unchanged."""

    stages: Mapping[Stage, str] = field(default_factory=dict)
    """Live stages and the keys of their artifacts."""
    slices: Mapping[Place, SliceState] = field(default_factory=dict)

    def intact_at(self, later: Snapshot) -> bool:
        """True if a newer state of the ledger still has all of it, unchanged."""
        return later.still_has(self.stages) and later.still_as(self.slices)


class Leaving(Enum):
    """When a computation's result may leave this process."""

    NEVER = "never"
    """It gives none: what is trained is refused by the ledger, if a deletion has overtaken it."""
    LATER = "later"
    """Not yet: `may_leave` is asked first."""
    NOW = "now"
    """At any moment: deletions of what it uses wait for it."""


class Work:
    def __init__(self, uses: Uses, ledger: Ledger, leaving: Leaving) -> None:
        self._uses = uses
        self._ledger = ledger
        self.leaving = leaving
        self.overtaken = False

    def may_leave(self) -> bool:
        """True if the result may leave. From here on deletions of what it uses wait until the computation ends."""
        # In this order: who notes that it is overtaken looks at `leaving` after that. So one of both sees the other.
        self.leaving = Leaving.NOW
        return not self.overtaken

    def look(self, snapshot: Snapshot) -> None:
        self.overtaken = self.overtaken or not self._uses.intact_at(snapshot)

    def confirm(self) -> None:
        """Ask the ledger once more: called before a result leaves."""
        self.look(self._ledger.snapshot())
        self.check()

    def check(self) -> None:
        """Stop if a deletion asks for it; called at every batch."""
        if self.overtaken:
            raise Overtaken
