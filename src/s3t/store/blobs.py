"""Blobs: content that never changes under its name, wherever it is kept."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Set
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeAlias, get_args

from s3t.errors import IntegrityError, MovedError, StorageError
from s3t.extras import how_to_install
from s3t.store.disk import OpenedFolder, remove_durably, sync_folder, write_bytes_durably
from s3t.store.folder import Description, Layout

if TYPE_CHECKING:
    from s3t.store.buckets import BucketBlobs

Blobs: TypeAlias = "LocalBlobs | BucketBlobs"
Kind: TypeAlias = Literal["slices", "artifacts"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def open_blobs(layout: Layout, description: Description, kind: Kind, *, within: OpenedFolder) -> Blobs:
    """A run's blobs of a kind: in its folder, `within`, or in the bucket that its description names."""
    if description.store is None:
        return LocalBlobs(layout.root / kind, tmp=layout.tmp, within=within)
    try:
        from s3t.store.buckets import BucketBlobs  # here: obstore is an extra

        return BucketBlobs(f"{description.store}/{description.run}/{kind}")
    except ImportError as error:
        raise StorageError(
            f"{layout.root} has its {kind} in a bucket ({error})", remedy=f"run {how_to_install('s3')}"
        ) from error


def folder_of(shard: int | None) -> str:
    """The folder of a shard's blobs; of all, if it is None."""
    return "" if shard is None else f"shard-{shard:03d}/"


class LocalBlobs:
    """A folder with a file for each blob, written elsewhere on the same file system and renamed when it is whole.

    Names are relative paths, such as shard-000/KEY.json, derived from content: no blob is ever replaced. All methods
    raise OSError where the store refuses. `BucketBlobs` has the same methods.
    """

    remote = False
    """True if each request takes a while: then openings ask for nothing."""

    def __init__(self, folder: Path, *, tmp: Path, within: OpenedFolder) -> None:
        self._folder = folder
        self._tmp = tmp
        self._within = within  # the run's folder

    def path(self, name: str) -> Path:
        return self._folder / name

    def where(self, name: str) -> str:
        """The blob's place, for messages."""
        return str(self.path(name))

    def put(self, name: str, content: bytes) -> None:
        """Store a blob, durably and whole. Raises IntegrityError if other content has the name already, or such as
        cannot be read."""
        path = self.path(name)
        try:
            found = path.read_bytes()
        except FileNotFoundError:
            write_bytes_durably(path, content, tmp=self._tmp, part=f"{path.name}.{secrets.token_hex(8)}")
        except OSError as error:
            reason = f"what is there already cannot be read ({error.strerror})"
            raise IntegrityError(f"{path}: {reason}; run `s3t erase`, then try again") from error
        else:
            if found != content:
                raise IntegrityError(f"{path}: other bytes are there already; run `s3t erase`, then try again")
            sync_folder(path.parent)  # a killed process may have put it; its name may not be on the disk yet
        with self._within.descriptor() as top:
            try:
                os.stat(path.relative_to(self._within.path), dir_fd=top)
            except FileNotFoundError:
                raise MovedError(f"{self._within.path} was moved while {path} was written; try again") from None

    def open(self, name: str) -> BinaryIO:
        """A blob to read from, at any position. Raises FileNotFoundError if it is not there."""
        return self.path(name).open("rb")

    def erase(self, names: Collection[str]) -> None:
        """Remove blobs, durably; one that is not there is no error."""
        remove_durably([self.path(name) for name in sorted(names)], within=self._within)

    def sizes(self, names: Collection[str]) -> dict[str, int]:
        """Size of each of the named blobs that is there, in bytes."""
        sizes = {}
        for name in names:
            with suppress(FileNotFoundError):
                sizes[name] = self.path(name).stat().st_size
        return sizes

    def names(self, folder: str = "") -> set[str]:
        """Every blob that is there, or below a folder. Answers, and deletions up to *effective*, list nothing."""
        files = (path for path in (self._folder / folder).rglob("*") if not path.is_dir())
        return {path.relative_to(self._folder).as_posix() for path in files}

    def parts(self) -> set[str]:
        """Names of unfinished puts: of running processes, or left by killed ones."""
        with self._within.descriptor() as top:
            try:
                folder = os.open(self._tmp.relative_to(self._within.path), os.O_RDONLY | os.O_DIRECTORY, dir_fd=top)
            except FileNotFoundError:
                return set()
        try:
            return set(os.listdir(folder))  # noqa: PTH208 - Path.iterdir takes no descriptor
        finally:
            os.close(folder)

    def erase_parts(self, parts: Collection[str], *, sparing: Set[str]) -> None:
        """Remove parts, except those of the blobs named by `sparing`. The caller makes sure that no others are being
        written.
        """
        spared = {PurePosixPath(name).name for name in sparing}
        left = [self._tmp / part for part in sorted(parts) if part.rpartition(".")[0] not in spared]
        remove_durably(left, within=self._within)
