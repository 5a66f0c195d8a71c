"""Durable writing: a file is whole and on the disk, or not there at all.

A file is written beside its final place under `tmp/`, synchronised, renamed, and its folder synchronised. What a
killed process left in `tmp/` is removed when the run is opened. A failed fsync is never retried: the error stops
the operation, since the disk's content is unknown after it.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from s3t.errors import FsyncError, MovedError, StorageError
from s3t.processes import this_machine

_failed_fsync: list[str] = []
"""Failed fsyncs of this process: path and reason."""


def note_failed_fsync(what: str) -> FsyncError:
    """Stop this process from changing any run, and return the error to raise.

    A second fsync may succeed although the data of the first, failed one are lost.
    """
    _failed_fsync.append(what)
    return _fsync_error()


def refuse_after_failed_fsync() -> None:
    """Raises FsyncError if an fsync has failed in this process."""
    if _failed_fsync:
        raise _fsync_error()


def _fsync_error() -> FsyncError:
    return FsyncError(
        f"the disk could not confirm what was written ({_failed_fsync[0]}), so its content is unknown. This "
        "process changes nothing more: repair the disk, end the process, and open the run again. If the last request "
        "was a deletion, repeat it: the answer says whether it had been accepted"
    )


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn an `OSError` within into a `StorageError` that says what was being done, and to which path."""
    refuse_after_failed_fsync()
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        path = f" ({error.filename})" if error.filename else ""
        raise StorageError(f"{doing} failed: {what}{path}", remedy=_REMEDIES.get(error.errno, _REMEDY)) from error


@dataclass(frozen=True)
class OpenedFolder:
    """A folder, known again by device and inode: later its path may be gone, or name another folder."""

    path: Path
    identity: tuple[int, int]
    """Device and inode."""

    @classmethod
    def of(cls, path: Path) -> OpenedFolder:
        return cls(path, identity_of(path.stat()))

    def check(self) -> None:
        """Check that the path still names the folder."""
        with storage_errors("looking at the run's folder"), self._moves():
            self._compare(os.stat(self.path))  # noqa: PTH116 - twice as fast as Path.stat, and asked for every answer

    @contextmanager
    def descriptor(self) -> Iterator[int]:
        """A descriptor of the folder: names relative to it are in that folder, even if it is renamed meanwhile."""
        with self._moves():
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._compare(os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _moves(self) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError):
            raise MovedError(
                f"{self.path} was moved or removed while this process had the run open: open the run again, where it "
                "is now"
            ) from None

    def _compare(self, found: os.stat_result) -> None:
        if identity_of(found) != self.identity:
            raise MovedError(
                f"another folder is in the place of {self.path}, which this process had open: open the run again, "
                "which compares it with the memory of deletions"
            )


def identity_of(found: os.stat_result) -> tuple[int, int]:
    """Device and inode of a file or folder."""
    return found.st_dev, found.st_ino


_READ_ONLY = "make it writable: its file system is mounted read-only"
_PERMISSION = "mend its permissions"
_OPEN_FILES = "raise the limit on open files (ulimit -n)"
_REMEDY = "mend what stands there, or the disk"
_REMEDIES: dict[int | None, str] = {
    errno.ENOSPC: "free space",
    errno.EDQUOT: "free space, or raise the quota",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EMFILE: _OPEN_FILES,
    errno.ENFILE: _OPEN_FILES,
    errno.EIO: "mend the disk",
}


def write_durably(
    path: Path,
    write: Callable[[Path], object],
    *,
    tmp: Path,
    mode: int | None = 0o600,
    part: str | None = None,
) -> None:
    """Replace `path` by what `write` puts into a temporary file in `tmp` (same file system), atomically.

    Its mode is `mode`; with None, what the user's mask gives. `part` names the temporary file.
    """
    make_folder(tmp, within=tmp.parent)
    make_folder(path.parent, within=tmp.parent)
    part_path = tmp / (part or temporary_name(os.getpid()))
    try:
        write(part_path)
        if mode is not None:
            part_path.chmod(mode)
        _sync(part_path)
        part_path.replace(path)
        sync_folder(path.parent)
    finally:
        part_path.unlink(missing_ok=True)


def temporary_name(process: int) -> str:
    """The name of a temporary file of a process of this machine."""
    return f"{this_machine()}-{process}-{secrets.token_hex(8)}"


def make_folder(folder: Path, *, mode: int = 0o700, within: Path | None = None) -> None:
    """Make a folder and its parents, each name durable; one that is there is left alone.

    By default they are their owner's alone, whatever the mask: some hold records, others names. Nothing is made above
    `within`.
    """
    if folder != within and not folder.is_dir():
        make_folder(folder.parent, mode=mode, within=within)
        folder.mkdir(mode=mode, exist_ok=True)
        sync_folder(folder.parent)


def write_bytes_durably(path: Path, content: bytes, *, tmp: Path, part: str | None = None) -> None:
    """`write_durably` for bytes in memory."""
    write_durably(path, lambda written: written.write_bytes(content), tmp=tmp, part=part)


def append_durably(path: Path, content: bytes) -> None:
    """Add whole lines to a file that only grows; what a crash tore at its end is closed off first."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        rest = (b"\n" if torn else b"") + content
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        _confirm(descriptor, path)
    finally:
        os.close(descriptor)
    if size == 0:
        sync_folder(path.parent)


def remove_durably(paths: list[Path], *, within: OpenedFolder | None = None) -> None:
    """Remove files that may be gone already, then synchronise each folder once.

    Of the folder `within`, above all of them, they are removed, or MovedError is raised: a file that is missing because
    the folder was renamed does not count as gone.
    """
    with nullcontext() if within is None else within.descriptor() as top:
        for path in paths:
            with suppress(FileNotFoundError):
                os.unlink(path if within is None else path.relative_to(within.path), dir_fd=top)
        for folder in sorted({path.parent for path in paths}):
            with suppress(FileNotFoundError):
                _sync(folder if within is None else folder.relative_to(within.path), top=top)


def overwrite_durably(path: Path) -> None:
    """Write zeros over a file's content, and wait for the disk."""
    with path.open("r+b", buffering=0) as file:
        file.write(b"\0" * path.stat().st_size)
        _confirm(file.fileno(), path)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    _sync(folder)


def _sync(path: Path, *, top: int | None = None) -> None:
    descriptor = os.open(path, os.O_RDONLY, dir_fd=top)
    try:
        _confirm(descriptor, path)
    finally:
        os.close(descriptor)


def _confirm(descriptor: int, path: Path) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise note_failed_fsync(f"{path}: {error.strerror or error}") from error


def open_to(path: Path) -> str | None:
    """Users with access beside the owner: "others", "its group", or None."""
    mode = path.stat().st_mode
    return "others" if mode & 0o007 else "its group" if mode & 0o070 else None


def publish_folder(part: Path, final: Path) -> None:
    """Make a written folder durable, and give it its name beside it, at once and whole."""
    for path in part.rglob("*"):
        _sync(path)
    _sync(part)
    part.rename(final)
    sync_folder(final.parent)


def remove_folder_durably(folder: Path) -> None:
    """Remove a folder with all that is in it; one that is gone already is no error."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    if folder.parent.is_dir():
        sync_folder(folder.parent)
