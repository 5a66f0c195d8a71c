"""Search for names in the slices' files as well as in the ledger, which may have lost a row.

Rows of the ledger have a check (`ledger/rows.py`); a row that a damaged page or index hides has none. So before a
request is answered or accepted, the files are searched for records that the ledger does not know, and for all subjects.

The files are read before the ledger. Segments only lose records, and tokens of deleted records stay in the ledger, so
every record in a file is in the ledger, present or deleted after the segment came, whatever other processes delete
meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s3t.core import Place, Secret, place_of, slices_among
from s3t.errors import IntegrityError, StorageError
from s3t.ledger import Ledger, Located, Transaction
from s3t.recipe import Recipe
from s3t.store.slices import Slices

if TYPE_CHECKING:
    import pyarrow as pa

    from s3t.deletion.acceptance import Batch


@dataclass(frozen=True, kw_only=True)
class FileMatches:
    records: Mapping[bytes, Mapping[bytes, int]] = field(default_factory=dict)
    """For each requested token of a record or subject, the tokens of the records in the files, each with the newest
    generation that took nothing of it: that of its segment."""
    unreadable: Mapping[Place, frozenset[bytes]] = field(default_factory=dict)
    """Slices whose files could not be read, and the requested tokens that they may hold."""

    def unreadable_for(self, token: bytes) -> tuple[Place, ...]:
        return slices_among(place for place, tokens in self.unreadable.items() if token in tokens)

    def of(self, batch: Batch) -> dict[bytes, int]:
        """The records in the files for a batch's names."""
        return newest(self.records[token] for token in self.records.keys() & (batch.records | batch.subjects))


@dataclass(frozen=True, kw_only=True)
class Lookup:
    ledger: Ledger
    secret: Secret
    slices: Slices
    recipe: Recipe

    def search(self, *, records: Mapping[bytes, str], subjects: Mapping[bytes, str]) -> FileMatches:
        """Matches for all requested subjects, and for the requested records that the ledger does not know.

        Of a held request only the tokens are known, and every name is empty: the names in every slice are hashed then.
        """
        names = {("record", token): records[token] for token in self._unknown(records)}
        if self.recipe.columns.subject is not None:
            names |= {("subject", token): name for token, name in subjects.items()}
        where: dict[Place, dict[tuple[str, bytes], str]] = {}
        segments: dict[Place, list[Place]] = {}
        states = self.ledger.snapshot().slices
        for place, state in states.items():
            if state.records or state.pending or not place.segment:  # most additions leave segments without a record
                segments.setdefault(place._replace(segment=0), []).append(place)
        for (kind, token), name in names.items():
            for place in self._places(kind, name, segments):
                where.setdefault(place, {})[kind, token] = name
        in_files: dict[bytes, dict[bytes, int]] = {}
        unreadable: dict[Place, frozenset[bytes]] = {}
        for place, asked in sorted(where.items()):
            try:
                table = self.read(place, ["record", "subject"])
            except (IntegrityError, StorageError):
                unreadable[place] = frozenset(token for _, token in asked)
                continue
            for token, record in self._matches(table, asked):
                found = in_files.setdefault(token, {})
                found[record] = max(states[place].after, found.get(record, 0))
        return FileMatches(records=in_files, unreadable=unreadable)

    def _unknown(self, records: Collection[bytes]) -> frozenset[bytes]:
        with self.ledger.reading() as transaction:
            located, slices = transaction.locate(records=records, subjects=()), transaction.snapshot().slices
        last = max(state.after for state in slices.values())  # what went later has not come back
        gone = {token for token, generation in located.gone.items() if generation > last}
        return frozenset(records) - {row.token for row in located.rows} - gone

    def read(self, place: Place, columns: list[str]) -> pa.Table:
        """Some columns of a segment's current version."""
        digest = self.ledger.snapshot().slices[place].digest
        while True:
            try:
                return self.slices.read(place, digest, columns)
            except IntegrityError:  # unless another process has superseded and removed it
                before, digest = digest, self.ledger.snapshot().slices[place].digest
                if digest == before:
                    raise

    def _places(self, kind: str, name: str, segments: Mapping[Place, Sequence[Place]]) -> set[Place]:
        """Segments that can hold a record, or a subject's records, of those of each slice."""
        partition = self.recipe.partition
        shards, slices, group = partition.shards, partition.slices, partition.group
        # A record's subject, which decides its slice, is unknown.
        if not name or (kind == "record" and self.recipe.columns.subject is not None):
            return set[Place]().union(*segments.values())
        subject = name if kind == "subject" else None
        spread = [None] if group is None else [*map(group.among, group.slices)]
        first = {
            place_of(name, subject, secret=self.secret, shards=shards, slices=slices, among=among) for among in spread
        }
        return set[Place]().union(*(segments.get(place, ()) for place in first))

    def _matches(self, names: pa.Table, asked: Mapping[tuple[str, bytes], str]) -> Iterator[tuple[bytes, bytes]]:
        """(Requested token, token of the record) for each row with a requested name."""
        if "" in asked.values():
            wanted = {token for _, token in asked}
            for name, subject in zip(names["record"].to_pylist(), names["subject"].to_pylist(), strict=True):
                record = self.secret.token("ledger", "record", name)
                owner = None if subject is None else self.secret.token("ledger", "subject", subject)
                for token in wanted & {record, owner}:
                    yield token, record
            return
        from s3t.store.tables import rows_with  # here: most requests name records that the ledger knows

        for kind in ("record", "subject"):
            by_name = {name: token for (its_kind, token), name in asked.items() if its_kind == kind}
            if by_name:
                rows = rows_with(names, kind, by_name)
                for owner, name in zip(rows[kind].to_pylist(), rows["record"].to_pylist(), strict=True):
                    yield by_name[owner], self.secret.token("ledger", "record", name)


def newest(found: Iterable[Mapping[bytes, int]]) -> dict[bytes, int]:
    """Several of the matches in files as one."""
    together: dict[bytes, int] = {}
    for records in found:
        for token, after in records.items():
            together[token] = max(after, together.get(token, 0))
    return together


def refuse_if_lost(transaction: Transaction, located: Located, in_files: Mapping[bytes, int]) -> None:
    """Refuse if a file holds a requested record that the ledger knows neither as present nor as deleted since.

    The transaction must have begun after the files were read. `in_files` are the requested records in them, as in
    `FileMatches.records`.
    """
    missing = in_files.keys() - {row.token for row in located.rows}
    if missing:
        gone = {**located.gone, **transaction.locate(records=missing, subjects=()).gone}
        missing = {token for token in missing if gone.get(token, 0) <= in_files[token]}
    if missing:
        what = "a requested record" if len(missing) == 1 else f"{len(missing)} requested records"
        raise IntegrityError(
            f"{what} lies in a slice's file, and the ledger does not find it there: the ledger is damaged. Run "
            "`s3t reconcile RUN`, which writes the ledger's rows anew from the slices, then run the same command again"
        )
