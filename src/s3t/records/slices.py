"""Slice files: one Parquet file a slice, rewritten whole when a record leaves it.

Rows are ordered by keyed hash of their id, so a row's position says nothing of the others' and does not depend on
the input's order. The files are plain: no compression, no dictionaries, no statistics, so that a byte search over
the run shows whether a record is gone, and no page keeps a value that its rows have lost.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from s3t.disk import write_durably
from s3t.errors import IntegrityError
from s3t.partition import Place, Secret, place_of
from s3t.records.canonical import canonical_bytes


@dataclass(frozen=True, kw_only=True)
class SliceContent:
    """A slice's rows and what the ledger keeps of them."""

    rows: pa.Table
    digest: str
    """Keyed hash of the rows in order, hexadecimal."""


def slice_path(folder: Path, place: Place) -> Path:
    """The file of a slice in the run's slices folder."""
    return folder / f"shard-{place.shard:03d}" / f"slice-{place.slice:03d}.parquet"


def split_into_slices(
    rows: pa.Table, *, secret: Secret, shards: int, slices: int, among: Sequence[Sequence[int]] | None = None
) -> dict[Place, pa.Table]:
    """Every slice's rows, ordered; slices without records are there, empty.

    Args:
        rows: records.
        secret: decides the slice, and the order within it.
        shards: m.
        slices: L.
        among: for each row, the slices that its group is spread over; None where there are no groups.
    """
    ids, subjects = rows["record"].to_pylist(), rows["subject"].to_pylist()
    members: dict[Place, list[tuple[bytes, int]]] = {
        Place(shard, index): [] for shard in range(shards) for index in range(slices)
    }
    spread = [None] * len(ids) if among is None else among
    for row, (record, subject, allowed) in enumerate(zip(ids, subjects, spread, strict=True)):
        place = place_of(record, subject, secret=secret, shards=shards, slices=slices, among=allowed)
        members[place].append((secret.token("order", "record", record), row))
    return {
        # Rows with one id are identical (ids are unique, or hashes of the content), so ties do not matter.
        place: rows.take(pa.array([row for _, row in sorted(chosen)], pa.int64())).combine_chunks()
        for place, chosen in members.items()
    }


def slice_digest(rows: pa.Table, secret: Secret) -> str:
    """HMAC-SHA256 of the rows, all columns in the order of their names, under the digest key."""
    names = sorted(rows.column_names)
    digest = hmac.new(secret.key("digest"), canonical_bytes(names), sha256)
    columns = [rows[name].to_pylist() for name in names]
    for row in zip(*columns, strict=True):
        digest.update(canonical_bytes(row))
    return digest.hexdigest()


def without_records(rows: pa.Table, tokens: Collection[bytes], secret: Secret) -> pa.Table:
    """The rows whose id's ledger token is not among `tokens`, in the same order."""
    ids = rows["record"].to_pylist()
    kept = [row for row, record in enumerate(ids) if secret.token("ledger", "record", record) not in tokens]
    # take() copies what is kept; a filter by slicing would share, and write, the old buffers.
    return rows.take(pa.array(kept, pa.int64())).combine_chunks()


def write_slice(
    folder: Path,
    place: Place,
    rows: pa.Table,
    *,
    tmp: Path,
    around: AbstractContextManager[None] | None = None,
) -> None:
    """Replace a slice's file, durably.

    Raises:
        OSError: the disk refused; the old file is as it was.
    """

    def write(part: Path) -> None:
        pa.parquet.write_table(
            rows, part, compression="none", use_dictionary=False, write_statistics=False, store_schema=False
        )

    write_durably(slice_path(folder, place), write, tmp=tmp, around=around)


def read_slice(folder: Path, place: Place, secret: Secret) -> SliceContent:
    """A slice's rows with the digest they have now.

    Raises:
        IntegrityError: the file is missing or not readable.
    """
    path = slice_path(folder, place)
    try:
        rows = pa.parquet.ParquetFile(path).read()
        return SliceContent(rows=rows, digest=slice_digest(rows, secret))
    except UNREADABLE as error:
        raise unreadable(path, place, error) from None


def names_in(folder: Path, place: Place) -> pa.Table:
    """The columns `record` and `subject` of a slice's file, and nothing else of it; its digest is not looked at.

    Raises:
        IntegrityError: the file is missing or not readable.
    """
    path = slice_path(folder, place)
    try:
        return pa.parquet.ParquetFile(path).read(columns=["record", "subject"]).select(["record", "subject"])
    except UNREADABLE as error:
        raise unreadable(path, place, error) from None


UNREADABLE = (OSError, pa.ArrowException, ValueError, KeyError, OverflowError, MemoryError, struct.error)
"""What reading a damaged Parquet file may raise: damage may look like a text that is none, or a column of terabytes."""


def unreadable(path: Path, place: Place, error: BaseException) -> IntegrityError:
    """What to tell of a slice's file that is missing or damaged."""
    reason = getattr(error, "strerror", None) or "its bytes are damaged"  # arrow's words may quote them
    return IntegrityError(
        f"{path}: the file of slice {place.slice} of shard {place.shard} cannot be read ({reason}); put it back "
        f"from a backup, then run `s3t reconcile {path.parents[2]}`, which takes out what was deleted since"
    )


def count_rows(path: Path) -> int | None:
    """How many rows a slice's file has, by its end alone; None if it is missing or cannot be read."""
    try:
        return int(pa.parquet.read_metadata(path).num_rows)
    except UNREADABLE:
        return None


def count_copies(rows: pa.Table) -> Mapping[tuple[str, str | None], int]:
    """Rows by (record id, subject)."""
    counts: dict[tuple[str, str | None], int] = {}
    for owner in zip(rows["record"].to_pylist(), rows["subject"].to_pylist(), strict=True):
        counts[owner] = counts.get(owner, 0) + 1
    return counts
