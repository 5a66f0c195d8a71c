"""Public labelled records that stages are tried on: no private record may be among them.

A choice by records that can be deleted would reveal them after their deletion.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from s3t.errors import DataError, IntegrityError
from s3t.recipe import Recipe
from s3t.records.ingest import ingest_labelled
from s3t.store.disk import write_durably
from s3t.store.rows import canonical_bytes, contents
from s3t.store.tables import UNREADABLE, table_in

_OWNERS = {"record", "subject", "date"}


@dataclass(frozen=True, kw_only=True)
class Public:
    path: Path
    digest: str

    @cached_property
    def rows(self) -> pa.Table:
        """Features and labels, read once."""
        try:
            rows = table_in(self.path)
            digest = public_digest(rows)
        except UNREADABLE as error:
            problem = f"{self.path}: the public records cannot be read ({error}); restore the run"
            raise IntegrityError(problem) from error
        if digest != self.digest:
            problem = f"{self.path}: the public records are not those of init; restore the run from a backup"
            raise IntegrityError(problem)
        return rows


def public_records(path: Path, recipe: Recipe, private: Iterable[pa.Table]) -> pa.Table:
    """Features and labels of the public records in a file."""
    records = ingest_labelled(path, recipe)
    rows = records.rows.select(features_of(records.rows))
    if found := shared(rows, private, columns=rows.column_names):
        where = f"{records.problems.positions.named(found)}: {len(found)} records are in the run's data, too"
        why = "a choice by records that can be deleted would reveal them afterwards"
        raise DataError(str(path), f"{where}; take them out here: {why}")
    return rows


def shared(rows: pa.Table, others: Iterable[pa.Table], *, columns: Sequence[str]) -> list[int]:
    """Numbers of the rows whose content, of some columns, is in another table, too."""
    every = list(contents(rows, columns))
    own, known = set(every), set[bytes]()
    for other in others:
        known |= own.intersection(contents(other, columns))
    return [number for number, content in enumerate(every) if content in known]


def public_digest(rows: pa.Table) -> str:
    digest = sha256(canonical_bytes(rows.column_names))
    for content in contents(rows, rows.column_names):
        digest.update(content)
    return digest.hexdigest()


def write_public(path: Path, rows: pa.Table, *, tmp: Path) -> None:
    write_durably(path, lambda part: pa.parquet.write_table(rows, part), tmp=tmp)


def features_of(rows: pa.Table) -> list[str]:
    """Feature and label columns of a record, without its id and subject."""
    return sorted(name for name in rows.column_names if name not in _OWNERS)
