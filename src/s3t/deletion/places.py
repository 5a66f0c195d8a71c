"""Every place in a run that can hold a record's bytes or influence, in one list.

Erasure walks it; a test watches a whole run and fails on a file that no entry names.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath


@dataclass(frozen=True, kw_only=True)
class StoragePlace:
    """A kind of file in a run."""

    pattern: str
    """Shell pattern of paths relative to the run folder."""
    holds: str
    """What of a record can be in it."""
    erased: str
    """How it goes when the record is deleted."""


PLACES = (
    StoragePlace(
        pattern="slices/shard-*/slice-*.parquet",
        holds="the record itself",
        erased="the slice's file is rewritten without it",
    ),
    StoragePlace(
        pattern="artifacts/shard-*/*.safetensors",
        holds="blocks and heads trained on it",
        erased="every artifact above the slice is removed",
    ),
    StoragePlace(
        pattern="artifacts/shard-*/*.json",
        holds="the keyed digest of a slice that held it",
        erased="removed with its artifact",
    ),
    StoragePlace(
        pattern="tmp/*",
        holds="a slice or an artifact while it is written",
        erased="renamed or removed at once; what a killed process left is removed when the run is opened",
    ),
    StoragePlace(
        pattern="ledger.sqlite*",
        holds="the keyed hash of its id and subject, and its slice's keyed digest",
        erased="kept: it answers a second request, and tells nothing without the run's secret",
    ),
    StoragePlace(pattern="run.json", holds="nothing, but the label set of labels: infer", erased="not at all"),
    StoragePlace(pattern="recipe.yaml", holds="nothing", erased="not at all"),
    StoragePlace(pattern="secret", holds="nothing; the key of all digests", erased="not at all"),
    StoragePlace(pattern="lock", holds="nothing", erased="not at all"),
)


def place_named(path: str) -> StoragePlace | None:
    """The entry that names a path relative to the run folder, or None.

    >>> place_named("slices/shard-000/slice-001.parquet").holds
    'the record itself'
    >>> place_named("cache/x") is None
    True
    """
    parts = PurePosixPath(path).parts
    for place in PLACES:
        wanted = PurePosixPath(place.pattern).parts
        if len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted)):
            return place
    return None
