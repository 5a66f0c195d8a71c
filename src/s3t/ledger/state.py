"""What is read from the ledger and written to it, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from s3t.inventory import Inventory
from s3t.partition import Place
from s3t.sequences import Order
from s3t.stages import Stage

State = Literal["accepted", "effective", "erased"]
"""How far a deletion has come."""


@dataclass(frozen=True, kw_only=True)
class RecordRow:
    """A record as the ledger knows it: by tokens (keyed hashes), never by name or content."""

    token: bytes
    subject: bytes | None
    place: Place
    copies: int
    """Rows with this id: more than one only where ids are content hashes and rows are identical."""


@dataclass(frozen=True, kw_only=True)
class SliceState:
    """A slice as the ledger knows it."""

    records: int
    losses: int
    """Deletions that have hit it; a stage that was training meanwhile is discarded."""
    digest: str
    """Of its current version: keyed hash of the rows."""
    pending: bool
    """Whether its current version is condemned: it still holds a record that has been accepted for deletion."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The ledger at one generation."""

    generation: int
    changes: int
    """Another snapshot with the same number is the same."""
    slices: Mapping[Place, SliceState]
    stages: Mapping[Stage, str]
    """Stages that are committed and not tainted, and the keys of their artifacts."""
    manifests: Mapping[Stage, str]
    """SHA-256 of their manifests."""
    walked: int
    """The newest generation for which every place was gone through, but for slices that may wait."""
    pending_since: float | None
    """When the first deletion was received of which a record is still in a slice's file; None if none is."""
    waiting_since: float | None
    """When the first deletion that is not erased yet was received (seconds since the epoch); None if all are."""
    dead: bool
    """Whether artifacts or versions of slices that are condemned, and not current, may be in the store."""

    def inventory(self, orders: tuple[tuple[Order, ...], ...], *, prototypes: bool = False) -> Inventory:
        """What is alive, for the orders of each shard, and whether there shall be prototypes of each slice."""
        return Inventory(
            generation=self.generation,
            orders=orders,
            records={place: state.records for place, state in self.slices.items()},
            alive=self.stages,
            prototypes=prototypes,
        )

    def digests(self, stage: Stage) -> tuple[str, ...]:
        """The digests of a stage's slices, in its order."""
        return tuple(self.slices[Place(stage.shard, index)].digest for index in stage.prefix)

    def seen(self, stage: Stage) -> dict[Place, SliceState]:
        """A stage's slices."""
        places = (Place(stage.shard, index) for index in stage.prefix)
        return {place: self.slices[place] for place in places}

    def still_has(self, stages: Mapping[Stage, str]) -> bool:
        """Whether stages are alive, under the same keys: what they answered may be used."""
        return all(self.stages.get(stage) == key for stage, key in stages.items())

    def still_as(self, seen: Mapping[Place, SliceState]) -> bool:
        """Whether slices have lost nothing since they were `seen`: what is trained on them may be committed."""
        return all(
            (now.losses, now.digest) == (then.losses, then.digest) and not now.pending
            for now, then in ((self.slices[place], state) for place, state in seen.items())
        )


@dataclass(frozen=True, kw_only=True)
class Located:
    """Where the requested records are."""

    rows: tuple[RecordRow, ...]
    """Present records, each once."""
    gone: Mapping[bytes, int]
    """Requested tokens that have been deleted before, and by which generation."""


@dataclass(frozen=True, kw_only=True)
class ToErase:
    """What is accepted, and not erased yet."""

    since: Mapping[Place, float]
    """Slices whose current version holds a record that is to go, and when the first deletion of one was received."""
    records: Mapping[Place, frozenset[bytes]]
    """Their tokens, for the slices that were asked for."""
    artifacts: frozenset[tuple[int, str]]
    """(shard, key) of condemned artifacts."""
    versions: frozenset[tuple[Place, str]]
    """Slices and digests of condemned versions; none of them is current."""
    slices: Mapping[Place, SliceState]
    """Every slice, as it shall be."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """A file outside the run that holds records of it."""

    path: Path
    cache: Path
    """The cache that it lies in."""
    host: str
    """Of init."""


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """What one deletion takes."""

    rows: Sequence[RecordRow]
    losses: Mapping[Place, int]
    """Records that each slice loses."""
    tainted: Mapping[Stage, str]
    """The live stages trained on those slices, and their keys."""
    request: bytes | None = None
    """The keyed hash of its idempotency key."""
    waited: float = 0.0
    """Seconds since it was received."""


@dataclass(frozen=True, kw_only=True)
class RequestRow:
    """A request with an idempotency key, as far as it has come."""

    content: bytes
    """Keyed hash of all names asked for."""
    names: int
    """Accepted so far, in the order of their tokens."""
    deleted: int
    generations: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """One generation in the log."""

    generation: int
    records: int
    """That it took."""
    received_at: float
    """When the process got the request; seconds since the epoch, UTC, as are the others. Deadlines count from here."""
    accepted_at: float | None
    """When it was durable, at the latest; None for the moments until that is noted."""
    effective_at: float | None
    erased_at: float | None

    @property
    def state(self) -> State:
        """How far it has come."""
        if self.erased_at is not None:
            return "erased"
        return "accepted" if self.effective_at is None else "effective"

    def to_json(self) -> dict[str, Any]:
        """One entry in the document of `s3t log --json`; times in UTC."""
        return {
            "generation": self.generation,
            "records": self.records,
            "state": self.state,
            "received_at": utc(self.received_at),
            "accepted_at": utc(self.accepted_at),
            "effective_at": utc(self.effective_at),
            "erased_at": utc(self.erased_at),
        }


def utc(seconds: float | None) -> str | None:
    """ISO 8601, to the millisecond."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
