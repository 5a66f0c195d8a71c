"""Blobs as files in a folder."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Set
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from s3t.disk import remove_durably, sync_folder, write_bytes_durably
from s3t.errors import IntegrityError


class LocalBlobs:
    """A folder with a file for each blob, written elsewhere on the same file system and renamed when it is whole.

    Args:
        folder: folder of the blobs.
        tmp: folder for files being written, those of the rest of the run included.
    """

    def __init__(self, folder: Path, *, tmp: Path) -> None:
        self._folder = folder
        self._tmp = tmp

    def path(self, name: str) -> Path:
        """The file of a blob."""
        return self._folder / name

    def put(self, name: str, content: bytes) -> None:
        """Store a blob, durably and whole.

        Raises:
            IntegrityError: other content has the name.
            OSError: the disk refused; nothing is left.
        """
        path = self.path(name)
        if path.exists():  # a killed process may have put it; its name may not be on the disk yet
            if path.read_bytes() != content:
                raise IntegrityError(f"{path}: other bytes are there already; run `s3t erase`, then try again")
            sync_folder(path.parent)
            return
        write_bytes_durably(path, content, tmp=self._tmp, part=f"{path.name}.{secrets.token_hex(8)}")

    def open(self, name: str) -> BinaryIO:
        """A blob's file."""
        return self.path(name).open("rb")

    def erase(self, names: Collection[str]) -> None:
        """Remove files, durably."""
        remove_durably([self.path(name) for name in sorted(names)])

    def sizes(self, names: Collection[str]) -> dict[str, int]:
        """Size of each of the named files that is there, in bytes."""
        sizes = {}
        for name in names:
            with suppress(FileNotFoundError):
                sizes[name] = self.path(name).stat().st_size
        return sizes

    def names(self) -> set[str]:
        """Every file below the folder."""
        files = (path for path in self._folder.rglob("*") if not path.is_dir())
        return {path.relative_to(self._folder).as_posix() for path in files}

    def parts(self) -> set[str]:
        """Files in the folder of temporary files."""
        return {part.name for part in self._tmp.iterdir()} if self._tmp.is_dir() else set()

    def erase_parts(self, parts: Collection[str], *, sparing: Set[str]) -> None:
        """Remove temporary files. The caller makes sure that only spared ones are being written."""
        spared = {PurePosixPath(name).name for name in sparing}
        for part in parts:
            if part.rpartition(".")[0] not in spared:
                (self._tmp / part).unlink(missing_ok=True)
