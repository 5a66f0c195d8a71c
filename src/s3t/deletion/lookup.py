"""Names are looked for in the slices' files as well as in the ledger, which may have lost a row.

Rows that are there have a check (`ledger/rows.py`). What is not there has none: a damaged page or index hides a row.
So records that the ledger does not know, and all subjects, who may have more records than the ledger finds, are looked
for in the files that can hold them, before anything is said or done.

The files are read before the ledger is asked. Nothing is ever added to a slice, and the token of what was deleted stays
in the ledger, so a record in a file is in the ledger, present or deleted, whatever others delete meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute

from s3t.deletion.request import Batch
from s3t.errors import IntegrityError
from s3t.ledger import Ledger, Located, Transaction
from s3t.partition import Place, Secret, place_of
from s3t.records import Slices


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the files of slices hold of requested names."""

    records: Mapping[bytes, frozenset[bytes]] = field(default_factory=dict)
    """For each requested token, of a record or of a subject, the tokens of its records in the files."""
    unreadable: Mapping[Place, frozenset[bytes]] = field(default_factory=dict)
    """Slices whose files could not be read, and the requested tokens that were looked for there."""

    def unreadable_for(self, token: bytes) -> tuple[Place, ...]:
        """Slices that may hold a requested name, and that could not be read."""
        return tuple(place for place, tokens in self.unreadable.items() if token in tokens)

    def of(self, batch: Batch) -> frozenset[bytes]:
        """The records of a batch."""
        asked = self.records.keys() & (batch.records | batch.subjects)
        return frozenset[bytes]().union(*(self.records[token] for token in asked))


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """Looks for names in the files of one run's slices."""

    ledger: Ledger
    secret: Secret
    slices: Slices
    counts: tuple[int, int]
    """Shards, and slices of each."""
    spread: tuple[tuple[int, ...] | None, ...]
    """For each group the slices that its records are spread over; one None where there are no groups."""
    has_subjects: bool
    """Whether records may have one: they then lie where their subject does."""

    def held(self, *, records: Mapping[bytes, str], subjects: Mapping[bytes, str]) -> Held:
        """What the files hold of every subject, and of the records that the ledger does not know.

        Args:
            records: requested ids, by token.
            subjects: requested subjects, by token.
        """
        with self.ledger.reading() as transaction:
            known = transaction.locate(records=records.keys(), subjects=())
        present = {row.token for row in known.rows}
        unknown = {token: name for token, name in records.items() if token not in present and token not in known.gone}
        where: dict[Place, dict[str, dict[bytes, str]]] = {}
        for kind, names in (("record", unknown), ("subject", subjects)):
            for token, name in names.items():
                for place in self._places(kind, name):
                    where.setdefault(place, {"record": {}, "subject": {}})[kind][token] = name
        found: dict[bytes, set[bytes]] = {}
        unreadable: dict[Place, frozenset[bytes]] = {}
        for place, asked in sorted(where.items()):
            try:
                names = self._names_in(place)
            except IntegrityError:
                unreadable[place] = frozenset(asked["record"]) | frozenset(asked["subject"])
                continue
            for kind in ("record", "subject"):
                for owner, record in self._found(names, kind, asked[kind]):
                    found.setdefault(owner, set()).add(record)
        return Held(records={token: frozenset(records) for token, records in found.items()}, unreadable=unreadable)

    def _names_in(self, place: Place) -> pa.Table:
        """The names in a slice's current version.

        Raises:
            IntegrityError: it is missing or not readable.
        """
        digest = self.ledger.snapshot().slices[place].digest
        while True:
            try:
                return self.slices.names_in(place, digest)
            except IntegrityError:  # or another process has superseded and removed it
                before, digest = digest, self.ledger.snapshot().slices[place].digest
                if digest == before:
                    raise

    def _places(self, kind: str, name: str) -> set[Place]:
        """Slices that can hold a record, or a subject's records."""
        if not self.has_subjects and kind == "subject":
            return set()
        shards, slices = self.counts
        if self.has_subjects and kind == "record":  # it lies where its subject does, whom nobody has named
            return {Place(shard, index) for shard in range(shards) for index in range(slices)}
        subject = name if kind == "subject" else None
        return {
            place_of(name, subject, secret=self.secret, shards=shards, slices=slices, among=among)
            for among in self.spread
        }

    def _found(self, names: pa.Table, kind: str, asked: Mapping[bytes, str]) -> list[tuple[bytes, bytes]]:
        """(requested token, token of a record) for each row that is asked for."""
        if not asked:
            return []
        by_name = {name: token for token, name in asked.items()}
        rows = names.filter(pa.compute.is_in(names[kind], pa.array(by_name, pa.string())))
        return [
            (by_name[owner], self.secret.token("ledger", "record", record))
            for owner, record in zip(rows[kind].to_pylist(), rows["record"].to_pylist(), strict=True)
        ]


def refuse_if_lost(transaction: Transaction, located: Located, held: Collection[bytes]) -> None:
    """Compare what the files hold with what the ledger has found.

    Args:
        transaction: begun after the files were read.
        located: what it has found of the requested names.
        held: tokens of records that the files hold of those names.

    Raises:
        IntegrityError: a file holds a record that the ledger has neither found nor noted as deleted.
    """
    missing = set(held) - {row.token for row in located.rows} - located.gone.keys()
    if missing:
        missing -= transaction.locate(records=missing, subjects=()).gone.keys()
    if missing:
        what = "a requested record" if len(missing) == 1 else f"{len(missing)} requested records"
        raise IntegrityError(
            f"{what} lies in a slice's file, and the ledger does not find it there: the ledger is damaged. Run "
            "`s3t reconcile RUN`, which writes the ledger's rows anew from the slices, then run the same command again"
        )
