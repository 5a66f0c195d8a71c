"""Blobs as files in a folder."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Set
from contextlib import nullcontext, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from s3t.disk import OpenedFolder, remove_durably, sync_folder, write_bytes_durably
from s3t.errors import IntegrityError, MovedError


class LocalBlobs:
    """A folder with a file for each blob, written elsewhere on the same file system and renamed when it is whole."""

    def __init__(self, folder: Path, *, tmp: Path, within: OpenedFolder | None = None) -> None:
        self._folder = folder
        self._tmp = tmp
        self._within = within

    def path(self, name: str) -> Path:
        """The file of a blob."""
        return self._folder / name

    def put(self, name: str, content: bytes) -> None:
        """Store a blob, durably and whole.

        Raises:
            OSError: the disk refused; nothing is left.
        """
        path = self.path(name)
        self._write(path, content)
        if self._within is not None:
            with self._within.descriptor() as top:
                try:
                    os.stat(path.relative_to(self._within.path), dir_fd=top)
                except FileNotFoundError:
                    raise MovedError(f"{self._within.path} was moved while {path} was written; try again") from None

    def _write(self, path: Path, content: bytes) -> None:
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
        remove_durably([self.path(name) for name in sorted(names)], within=self._within)

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
        with nullcontext() if self._within is None else self._within.descriptor() as top:
            try:
                tmp = os.open(
                    self._tmp if self._within is None else self._tmp.relative_to(self._within.path),
                    os.O_RDONLY | os.O_DIRECTORY,
                    dir_fd=top,
                )
            except FileNotFoundError:
                return set()
        try:
            return set(os.listdir(tmp))  # noqa: PTH208 - Path.iterdir takes no descriptor
        finally:
            os.close(tmp)

    def erase_parts(self, parts: Collection[str], *, sparing: Set[str]) -> None:
        """Remove temporary files. The caller makes sure that only spared ones are being written."""
        spared = {PurePosixPath(name).name for name in sparing}
        left = [self._tmp / part for part in sorted(parts) if part.rpartition(".")[0] not in spared]
        remove_durably(left, within=self._within)
