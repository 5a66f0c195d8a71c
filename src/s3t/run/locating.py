"""Search for records and subjects in a run, for the operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from s3t.core import slices_among
from s3t.deletion.lookup import newest, refuse_if_lost
from s3t.ledger import RecordRow
from s3t.records.requests import requested_names
from s3t.results.log import Location

if TYPE_CHECKING:
    from s3t.run.run import Run


def locate(run: Run, *, records: Sequence[str | int] = (), subjects: Sequence[str | int] = ()) -> tuple[Location, ...]:
    """Find records and subjects: present ones with their slice, deleted ones with the time. For the operator.

    Raises:
        InputError: no name; a string instead of a list; an empty name, or one that is neither text nor a whole
            number.
        IntegrityError: the ledger has lost a record that is in a slice's file.
    """
    names, secret, lookup = requested_names(records, subjects), run.parts.secret, run.parts.lookup
    ids = {secret.token("ledger", "record", name): name for name in names["records"]}
    people = {secret.token("ledger", "subject", name): name for name in names["subjects"]}
    in_files = lookup.search(records=ids, subjects=people)
    with run.parts.ledger.reading() as transaction:
        found = transaction.locate(records=ids.keys(), subjects=people.keys())
        refuse_if_lost(transaction, found, newest(in_files.records.values()))
        entries = {entry.generation: entry for entry in transaction.history.log(set(found.gone.values()))}
    by_token = defaultdict[bytes, list[RecordRow]](list)
    for row in found.rows:
        by_token[row.token].append(row)
        if row.subject is not None:
            by_token[row.subject].append(row)

    def location(kind: Literal["record", "subject"], token: bytes, name: str) -> Location:
        rows, gone = by_token.get(token, []), found.gone.get(token)
        return Location(
            kind=kind,
            name=name,
            places=slices_among(row.place for row in rows),
            records=sum(row.copies for row in rows),
            unreadable=in_files.unreadable_for(token) if gone is None and not rows else (),
            deleted=None if rows or gone is None else entries.get(gone),
        )

    return (
        *(location("record", token, name) for token, name in ids.items()),
        *(location("subject", token, name) for token, name in people.items()),
    )
