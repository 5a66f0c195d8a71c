"""Protocol of a blob store. Names are derived from content, so no blob is ever replaced."""

from __future__ import annotations

from collections.abc import Collection, Set
from typing import BinaryIO, Protocol


class Blobs(Protocol):
    """Names are relative paths, such as shard-000/KEY.json. All methods raise OSError where the store refuses."""

    def put(self, name: str, content: bytes) -> None:
        """Store a blob, durably and whole. Raises IntegrityError if other content has the name already."""

    def open(self, name: str) -> BinaryIO:
        """A blob to read from, at any position. Raises FileNotFoundError if it is not there."""

    def erase(self, names: Collection[str]) -> None:
        """Remove blobs, durably; one that is not there is no error."""

    def sizes(self, names: Collection[str]) -> dict[str, int]:
        """Size of each of the named blobs that is there, in bytes."""

    def names(self) -> set[str]:
        """Every blob that is there. For openings and audits: answers and deletions never list a store."""

    def parts(self) -> set[str]:
        """Names of unfinished puts: of running processes, or left by killed ones."""

    def erase_parts(self, parts: Collection[str], *, sparing: Set[str]) -> None:
        """Remove parts, except those of the blobs named by `sparing`."""
