"""Search for records and subjects in a run, for the operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from s3t.deletion.lookup import FileMatches, Lookup, refuse_if_lost
from s3t.ledger import LogEntry, RecordRow, State, Transaction
from s3t.partition import Place, Secret


@dataclass(frozen=True, kw_only=True)
class Location:
    """Presence of one name in the run."""

    kind: Literal["record", "subject"]
    name: str
    present: bool
    places: tuple[Place, ...]
    """Slices that hold it; of a subject all records are in one."""
    records: int
    """Rows: of a subject as many as it has records."""
    unreadable: tuple[Place, ...]
    """Slices that may hold it although the ledger does not know it, and whose files cannot be read."""
    deleted: LogEntry | None
    """The deletion that took it (of a subject, its last record); None if it is present, or was never held."""

    @property
    def state(self) -> Literal["present", "unknown"] | State:
        """present, accepted, effective, erased, or unknown."""
        if self.present:
            return "present"
        return "unknown" if self.deleted is None else self.deleted.state

    def to_json(self) -> dict[str, Any]:
        """The entry in the document of `s3t locate --json`."""
        return {
            self.kind: self.name,
            "state": self.state,
            "places": [list(place) for place in self.places],
            "records": self.records,
            "unreadable": [list(place) for place in self.unreadable],
            "deleted": None if self.deleted is None else self.deleted.to_json(),
        }

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> Location:
        """The location of a document, with times to the millisecond."""
        kind: Literal["record", "subject"] = "record" if "record" in document else "subject"
        return cls(
            kind=kind,
            name=document[kind],
            present=document["state"] == "present",
            places=tuple(Place(*pair) for pair in document["places"]),
            records=document["records"],
            unreadable=tuple(Place(*pair) for pair in document["unreadable"]),
            deleted=None if document["deleted"] is None else LogEntry.of_json(document["deleted"]),
        )


def locate(lookup: Lookup, *, records: Sequence[str], subjects: Sequence[str]) -> tuple[Location, ...]:
    """Look names up, in the slices' files and in the ledger."""
    secret = lookup.secret
    in_files = lookup.search(
        records={secret.token("ledger", "record", name): name for name in records},
        subjects={secret.token("ledger", "subject", name): name for name in subjects},
    )
    with lookup.ledger.reading() as transaction:
        return _locations(transaction, secret, in_files, records=records, subjects=subjects)


def _locations(
    transaction: Transaction, secret: Secret, in_files: FileMatches, *, records: Sequence[str], subjects: Sequence[str]
) -> tuple[Location, ...]:
    asked = [("record", name, secret.token("ledger", "record", name)) for name in records]
    asked += [("subject", name, secret.token("ledger", "subject", name)) for name in subjects]
    found = transaction.locate(
        records=[token for kind, _, token in asked if kind == "record"],
        subjects=[token for kind, _, token in asked if kind == "subject"],
    )
    refuse_if_lost(transaction, found, frozenset[bytes]().union(*in_files.records.values()))
    entries = {entry.generation: entry for entry in transaction.history.log(set(found.gone.values()))}
    by_token: dict[tuple[str, bytes], list[RecordRow]] = {}
    for row in found.rows:
        by_token.setdefault(("record", row.token), []).append(row)
        if row.subject is not None:
            by_token.setdefault(("subject", row.subject), []).append(row)
    result = []
    for kind, name, token in asked:
        rows, unknown = by_token.get((kind, token), []), token not in found.gone
        result.append(
            Location(
                kind="record" if kind == "record" else "subject",
                name=name,
                present=bool(rows),
                places=tuple(sorted({row.place for row in rows})),
                records=sum(row.copies for row in rows),
                unreadable=in_files.unreadable_for(token) if unknown and not rows else (),
                deleted=None if rows or unknown else entries.get(found.gone[token]),
            )
        )
    return tuple(result)
