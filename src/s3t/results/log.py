"""Results of looking deletions up: entries of the log, and where a name is."""

from __future__ import annotations

from typing import Literal

from pydantic import computed_field

from s3t.results.base import Result, SliceField, Time

State = Literal["accepted", "effective", "erased"]
"""The last step of a deletion that is complete."""


class LogEntry(Result):
    """A deletion in the log; entry 0 is the making of the run."""

    generation: int
    records: int
    """Records that it deleted."""
    received_at: Time
    """When the process received the request; deadlines count from it."""
    accepted_at: Time | None
    """Latest time at which it became durable; null for the moments until that is noted."""
    effective_at: Time | None
    """When no answer could use its records any more."""
    erased_at: Time | None
    """When no byte of them was left."""
    to_withdraw: tuple[str, ...] | None = ()
    """Exports with its records in them, which have to be withdrawn before it is erased; null for callers without the
    scope operate, whom their names would tell where its records lay."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> State:
        """The last step that is complete."""
        if self.erased_at is not None:
            return "erased"
        return "accepted" if self.effective_at is None else "effective"


class AdditionEntry(Result):
    """An addition in the log."""

    addition: int
    """Its number, counted from 1."""
    added_at: Time
    records: int
    """Records that came with it."""
    readmitted: int
    """Number of these records that came back: they, or their subjects, had been deleted on request."""


class Location(Result):
    """Presence of one name in the run."""

    kind: Literal["record", "subject"]
    name: str
    places: tuple[SliceField, ...]
    """Slices that hold it; of a subject all records are in one."""
    records: int
    """Rows: of a subject as many as it has records."""
    unreadable: tuple[SliceField, ...]
    """Slices that may hold it although the ledger does not know it, and whose files cannot be read."""
    deleted: LogEntry | None
    """The deletion that took it (of a subject, its last record); null if it is present, or was never held."""

    @property
    def present(self) -> bool:
        """True if the run holds it."""
        return bool(self.places)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> Literal["present", "unknown"] | State:
        """present, accepted, effective, erased, or unknown."""
        if self.present:
            return "present"
        return "unknown" if self.deleted is None else self.deleted.state

    def __repr__(self) -> str:
        """Kind and state; names do not belong in logs."""
        return f"Location({self.kind}, {self.state})"
