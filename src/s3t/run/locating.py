"""Search for records and subjects in a run, for the operator."""

from __future__ import annotations

from collections.abc import Sequence

from s3t.core import Secret
from s3t.deletion.lookup import FileMatches, Lookup, refuse_if_lost
from s3t.ledger import RecordRow, Transaction
from s3t.results.log import Location


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
                places=tuple(sorted({row.place for row in rows})),
                records=sum(row.copies for row in rows),
                unreadable=in_files.unreadable_for(token) if unknown and not rows else (),
                deleted=None if rows or unknown else entries.get(found.gone[token]),
            )
        )
    return tuple(result)
