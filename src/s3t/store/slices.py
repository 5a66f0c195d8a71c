"""Slices as blobs: each version of a slice is a Parquet file under the keyed digest of its rows, and never changes.

A slice that loses a record gets another version; which one is current, the ledger says. Rows are ordered by keyed hash
of their id, so a row's position says nothing of the others' and does not depend on the input's order. The files are
plain: no compression, no dictionaries, no statistics. So a byte search over the run shows whether a record is gone, and
no page keeps a value that its rows have lost.

pyarrow is imported where rows are read or written: to open a run, the names of versions are enough.
"""

from __future__ import annotations

import hmac
import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from s3t.core import Place, Secret
from s3t.errors import IntegrityError, MovedError
from s3t.store.blobs import folder_of
from s3t.store.rows import Cells, canonical_bytes, contents

if TYPE_CHECKING:
    import pyarrow as pa

    from s3t.store.blobs import Blobs

_NAME = re.compile(r"shard-(\d+)/slice-(\d+)(?:\.(\d+))?-([0-9a-f]{64})\.parquet")


def version_name(place: Place, digest: str) -> str:
    """The blob of a slice's version.

    >>> version_name(Place(0, 2), "ab"), version_name(Place(0, 2, 7), "ab")
    ('shard-000/slice-002-ab.parquet', 'shard-000/slice-002.7-ab.parquet')
    """
    segment = f".{place.segment}" if place.segment else ""
    return f"{folder_of(place.shard)}slice-{place.slice:03d}{segment}-{digest}.parquet"


@dataclass(frozen=True, kw_only=True)
class Slices:
    blobs: Blobs
    secret: Secret
    run: Path
    """The run's folder, for messages."""

    def put(self, place: Place, rows: pa.Table) -> str:
        """Store a version, durably; its digest. One that is there already, whole, stays; a damaged one is replaced."""
        from s3t.store.tables import parquet

        digest = slice_digest(rows, self.secret)
        name, content = version_name(place, digest), parquet(rows)
        try:
            self.blobs.put(name, content)
        except MovedError:
            raise
        except IntegrityError:
            if self.is_whole(place, digest):  # another version of Parquet's writer has written it
                with self.blobs.open(name) as file:
                    content = file.read()
            else:
                self.blobs.erase([name])
            self.blobs.put(name, content)
        return digest

    def is_whole(self, place: Place, digest: str) -> bool:
        try:
            self.read(place, digest)
        except IntegrityError:
            return False
        return True

    def count_rows(self, place: Place, digest: str) -> int | None:
        """Number of rows of a version, from its footer alone; None if it is missing or unreadable."""
        from s3t.store.tables import UNREADABLE, row_count_in

        try:
            with self.blobs.open(version_name(place, digest)) as file:
                return row_count_in(file)
        except UNREADABLE:
            return None

    def versions(self, shard: int | None = None) -> dict[Place, frozenset[str]]:
        """The digests of every slice's versions that are there, or of one shard's. Lists the store."""
        found: dict[Place, set[str]] = {}
        for name in self.blobs.names(folder_of(shard)):
            if match := _NAME.fullmatch(name):
                place = Place(int(match[1]), int(match[2]), int(match[3] or 0))
                found.setdefault(place, set()).add(match[4])
        return {place: frozenset(digests) for place, digests in found.items()}

    def erase(self, versions: Iterable[tuple[Place, str]]) -> None:
        """Remove versions, durably; one that is not there is no error."""
        self.blobs.erase([version_name(place, digest) for place, digest in versions])

    def where(self, place: Place, digest: str) -> str:
        return self.blobs.where(version_name(place, digest))

    def read(self, place: Place, digest: str, columns: list[str] | None = None) -> pa.Table:
        """A version; or some columns, and nothing else of it: then its digest is not looked at."""
        from s3t.store.tables import UNREADABLE, table_in

        what, reconcile = f"the file of slice {place.slice} of shard {place.shard}", f"run `s3t reconcile {self.run}`"
        try:
            with self.blobs.open(version_name(place, digest)) as file:
                rows = table_in(file, columns)
            if columns is not None:
                return rows.select(columns)
            actual = slice_digest(rows, self.secret)
        except UNREADABLE as error:
            reason = getattr(error, "strerror", None) or "its bytes are damaged"  # arrow's words may quote them
            raise IntegrityError(
                f"{self.where(place, digest)}: {what} cannot be read ({reason}); put it back from a backup, then "
                f"{reconcile}, which takes out what was deleted since"
            ) from None
        if actual != digest:
            raise IntegrityError(
                f"{self.where(place, digest)}: {what} is not the one that the ledger knows; {reconcile}, which "
                "restores it from an older one, or names the problem"
            )
        return rows


def slice_digest(rows: pa.Table, secret: Secret) -> str:
    """HMAC-SHA256 of the rows, all columns in the order of their names, under the digest key."""
    names = sorted(rows.column_names)
    digest = hmac.new(secret.key("digest"), canonical_bytes(names), sha256)
    for content in contents(rows, names):
        digest.update(content)
    return digest.hexdigest()


def without_records(rows: pa.Table, tokens: Collection[bytes], secret: Secret) -> pa.Table:
    """The rows whose id's ledger token is not among `tokens`, in the same order."""
    from s3t.store.tables import rows_without

    if not tokens:
        return rows
    ids = rows["record"].to_pylist()
    removed = [row for row, record in enumerate(ids) if secret.token("ledger", "record", record) in tokens]
    return rows_without(rows, removed)


def copies_in_order(rows: pa.Table) -> Iterator[tuple[tuple[str, str | None], int]]:
    """Yields ((record id, subject), its rows) of a slice, in the order of which rows with one id stand together."""
    names = zip(Cells(rows["record"]), Cells(rows["subject"]), strict=True)
    return ((name, sum(1 for _ in copies)) for name, copies in itertools.groupby(names))
