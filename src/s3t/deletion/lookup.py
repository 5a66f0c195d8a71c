"""Search for names in the slices' files as well as in the ledger, which may have lost a row.

Rows of the ledger have a check (`ledger/rows.py`); a row that a damaged page or index hides has none. So before a
request is answered or accepted, the files are searched for records that the ledger does not know, and for all subjects.

The files are read before the ledger. Segments only lose records, and tokens of deleted records stay in the ledger, so
every record in a file is in the ledger, present or deleted, whatever other processes delete meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s3t.core import Place, Secret, place_of, slices_among
from s3t.errors import IntegrityError
from s3t.ledger import Ledger, Located, Transaction
from s3t.recipe import Recipe
from s3t.store.slices import Slices

if TYPE_CHECKING:
    import pyarrow as pa

    from s3t.deletion.acceptance import Batch


@dataclass(frozen=True, kw_only=True)
class FileMatches:
    records: Mapping[bytes, Set[bytes]] = field(default_factory=dict)
    """Tokens of the records in the files, for each requested token of a record or subject."""
    unreadable: Mapping[Place, frozenset[bytes]] = field(default_factory=dict)
    """Slices whose files could not be read, and the requested tokens that they may hold."""

    def unreadable_for(self, token: bytes) -> tuple[Place, ...]:
        return slices_among(place for place, tokens in self.unreadable.items() if token in tokens)

    def of(self, batch: Batch) -> frozenset[bytes]:
        """Tokens of the records in the files for a batch's names."""
        asked = self.records.keys() & (batch.records | batch.subjects)
        return frozenset[bytes]().union(*(self.records[token] for token in asked))


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
        for place, state in self.ledger.snapshot().slices.items():
            if state.records or state.pending or not place.segment:  # most additions leave segments without a record
                segments.setdefault(place._replace(segment=0), []).append(place)
        for (kind, token), name in names.items():
            for place in self._places(kind, name, segments):
                where.setdefault(place, {})[kind, token] = name
        in_files: dict[bytes, set[bytes]] = {}
        unreadable: dict[Place, frozenset[bytes]] = {}
        for place, asked in sorted(where.items()):
            try:
                table = self._names_in(place)
            except IntegrityError:
                unreadable[place] = frozenset(token for _, token in asked)
                continue
            for token, record in self._matches(table, asked):
                in_files.setdefault(token, set()).add(record)
        return FileMatches(records=in_files, unreadable=unreadable)

    def _unknown(self, records: Collection[bytes]) -> frozenset[bytes]:
        with self.ledger.reading() as transaction:
            located = transaction.locate(records=records, subjects=())
        return frozenset(records) - {row.token for row in located.rows} - located.gone.keys()

    def _names_in(self, place: Place) -> pa.Table:
        digest = self.ledger.snapshot().slices[place].digest
        while True:
            try:
                return self.slices.read(place, digest, ["record", "subject"])
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


def refuse_if_lost(transaction: Transaction, located: Located, in_files: Collection[bytes]) -> None:
    """Refuse if a file holds a requested record that the ledger knows neither as present nor as deleted.

    The transaction must have begun after the files were read. `in_files` are the tokens of the requested records in
    them.
    """
    missing = set(in_files) - {row.token for row in located.rows} - located.gone.keys()
    if missing:
        missing -= transaction.locate(records=missing, subjects=()).gone.keys()
    if missing:
        what = "a requested record" if len(missing) == 1 else f"{len(missing)} requested records"
        raise IntegrityError(
            f"{what} lies in a slice's file, and the ledger does not find it there: the ledger is damaged. Run "
            "`s3t reconcile RUN`, which writes the ledger's rows anew from the slices, then run the same command again"
        )
