"""A SQLite ledger on a file system that is mounted read-only.

With the log and its index, SQLite sees what a writer on the same host commits. Where the log was written back, the
database is read as a file that does not change; if it does change, what was read is dropped. A log without an index
cannot be read, and may hold an accepted deletion: that is refused.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from s3t.errors import StorageError

_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "fuse.sshfs"}


class UnsteadyError(StorageError):
    """The database changed while it was read as one that does not."""


def read_only_error(what: str) -> StorageError:
    """The error for changes."""
    return StorageError(f"{what} is on a file system that is mounted read-only", remedy="mount it writable")


def is_read_only(folder: Path) -> bool:
    """True if a folder's file system is mounted read-only."""
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY)
    except OSError:  # a missing folder is reported when it is opened
        return False


def connection(database: Path, **options: Any) -> sqlite3.Connection:
    """A connection that sees every commit."""
    if (kind := _file_system(database)) in _NETWORK:
        raise StorageError(
            f"{database} is on a network file system ({kind}) that is mounted read-only, where SQLite cannot see what "
            "other hosts write",
            remedy="open the run on the host that has it, or keep its ledger in PostgreSQL",
        )
    has_log, has_index = _size(_beside(database, "-wal")) > 0, _beside(database, "-shm").exists()
    if has_log and not has_index:
        raise StorageError(
            f"{database} was copied while it was in use: its log (-wal) holds changes, perhaps accepted deletions, "
            "that cannot be read where nothing can be written",
            remedy=f"open the run once where it can be written (`s3t status {database.parent}`)",
        )
    in_use = has_index and _beside(database, "-wal").exists()
    mode = "mode=ro" if in_use else "mode=ro&immutable=1"
    opened: sqlite3.Connection = sqlite3.connect(f"file:{quote(str(database))}?{mode}", uri=True, **options)
    return opened


@contextmanager
def steady(database: Path) -> Iterator[None]:
    """A reading of a database, while within."""
    before, in_use = _mark(database), _beside(database, "-shm").exists()
    try:
        yield
    except StorageError as error:
        if _mark(database) != before:
            raise _unsteady(database) from error
        raise
    if not in_use and _mark(database) != before:
        raise _unsteady(database)


def _unsteady(database: Path) -> UnsteadyError:
    return UnsteadyError(f"{database} was written to while it was read on a read-only mount")


def _mark(database: Path) -> tuple[int, ...]:
    status = database.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, _size(_beside(database, "-wal"))


def _beside(database: Path, suffix: str) -> Path:
    return database.with_name(database.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _file_system(path: Path) -> str:
    """The kind of file system of a path; "" if unknown."""
    import psutil

    mounts = {Path(each.mountpoint): each.fstype for each in psutil.disk_partitions(all=True)}
    return next((mounts[folder] for folder in path.resolve().parents if folder in mounts), "")
