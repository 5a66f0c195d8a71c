"""The entry of the list of places that names a file."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Literal

from tests.deletion.places import PLACES, StoragePlace


def place_named(path: str, *, folder: Literal["run", "state"] = "run") -> StoragePlace | None:
    """The entry that names a path relative to the run folder, or to the state folder; or None.

    >>> place_named("slices/shard-000/slice-001-ab.parquet").holds
    'the record itself'
    >>> place_named("cache/x") is None
    True
    """
    parts = PurePosixPath(path).parts
    for place in PLACES:
        pattern = PurePosixPath(place.pattern).parts
        if place.folder == folder and len(parts) == len(pattern) and all(map(fnmatchcase, parts, pattern)):
            return place
    return None
