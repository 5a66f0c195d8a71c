"""Whether a record is in the run: for the operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from s3t.ledger import LogEntry, RecordRow, State, Transaction
from s3t.partition import Place, Secret


@dataclass(frozen=True, kw_only=True)
class Location:
    """What the run knows of one name."""

    kind: Literal["record", "subject"]
    name: str
    present: bool
    places: tuple[Place, ...]
    """Slices that hold it; of a subject all records are in one."""
    records: int
    """Rows: of a subject as many as it has records."""
    deleted: LogEntry | None
    """The deletion that took it (of a subject, its last record); None if it is present, or was never held."""

    @property
    def state(self) -> Literal["present", "unknown"] | State:
        """present, accepted, effective, erased, or unknown."""
        if self.present:
            return "present"
        return "unknown" if self.deleted is None else self.deleted.state

    def to_json(self) -> dict[str, Any]:
        """One entry in the document of `s3t locate --json`."""
        return {
            self.kind: self.name,
            "state": self.state,
            "places": [list(place) for place in self.places],
            "records": self.records,
            "deleted": None if self.deleted is None else self.deleted.to_json(),
        }


def locate(
    transaction: Transaction, secret: Secret, *, records: Sequence[str], subjects: Sequence[str]
) -> tuple[Location, ...]:
    """Look names up.

    Args:
        transaction: a reading one.
        secret: the run's; names are looked up by their keyed hashes.
        records: ids.
        subjects: people.
    """
    asked = [("record", name, secret.token("ledger", "record", name)) for name in records]
    asked += [("subject", name, secret.token("ledger", "subject", name)) for name in subjects]
    found = transaction.locate(
        records=[token for kind, _, token in asked if kind == "record"],
        subjects=[token for kind, _, token in asked if kind == "subject"],
    )
    entries = {entry.generation: entry for entry in transaction.log(set(found.gone.values()))}
    held: dict[tuple[str, bytes], list[RecordRow]] = {}
    for row in found.rows:
        held.setdefault(("record", row.token), []).append(row)
        if row.subject is not None:
            held.setdefault(("subject", row.subject), []).append(row)
    result = []
    for kind, name, token in asked:
        rows = held.get((kind, token), [])
        result.append(
            Location(
                kind="record" if kind == "record" else "subject",
                name=name,
                present=bool(rows),
                places=tuple(sorted({row.place for row in rows})),
                records=sum(row.copies for row in rows),
                deleted=None if rows or token not in found.gone else entries.get(found.gone[token]),
            )
        )
    return tuple(result)
