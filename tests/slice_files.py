"""The files of slices in a run's folder, for tests that look at them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from s3t.core import Place, Secret
from s3t.store.slices import slice_digest


@dataclass(frozen=True, kw_only=True)
class SliceContent:
    """A version of a slice."""

    rows: pa.Table
    digest: str
    """Of the rows as they are."""


def versions_of(folder: Path, place: Place) -> list[Path]:
    """The files of a slice in the run's folder of slices."""
    return sorted((folder / f"shard-{place.shard:03d}").glob(f"slice-{place.slice:03d}-*.parquet"))


def slice_path(folder: Path, place: Place) -> Path:
    """The one file of a slice."""
    (path,) = versions_of(folder, place)
    return path


def read_slice(folder: Path, place: Place, secret: Secret) -> SliceContent:
    """What the one file of a slice holds."""
    rows = pa.parquet.ParquetFile(slice_path(folder, place)).read()
    return SliceContent(rows=rows, digest=slice_digest(rows, secret))
