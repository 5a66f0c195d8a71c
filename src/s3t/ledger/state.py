"""What is read from the ledger and written to it, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from s3t.inventory import Inventory
from s3t.partition import Place
from s3t.sequences import Order
from s3t.stages import Stage


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
    """Keyed hash of the rows in its file."""
    pending: bool
    """Whether its file still holds a record that has been accepted for deletion."""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The ledger at one generation."""

    generation: int
    slices: Mapping[Place, SliceState]
    stages: Mapping[Stage, str]
    """Stages that are committed and not tainted, and the keys of their artifacts."""

    def inventory(self, orders: tuple[tuple[Order, ...], ...]) -> Inventory:
        """What is alive, for the orders of each shard."""
        return Inventory(
            generation=self.generation,
            orders=orders,
            records={place: state.records for place, state in self.slices.items()},
            alive=self.stages,
        )

    def digests(self, stage: Stage) -> tuple[str, ...]:
        """The digests of a stage's slices, in its order."""
        return tuple(self.slices[Place(stage.shard, index)].digest for index in stage.prefix)

    def seen(self, stage: Stage) -> dict[Place, SliceState]:
        """A stage's slices."""
        places = (Place(stage.shard, index) for index in stage.prefix)
        return {place: self.slices[place] for place in places}


@dataclass(frozen=True, kw_only=True)
class Located:
    """Where the requested records are."""

    rows: tuple[RecordRow, ...]
    """Present records, each once."""
    already: frozenset[bytes]
    """Requested tokens that have been deleted before."""
