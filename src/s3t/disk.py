"""Durable writing: a file is whole and on the disk, or not there at all.

A file is written beside its final place under `tmp/`, synchronised, renamed, and its folder synchronised. What a
killed process left in `tmp/` is removed when the run is opened. A failed fsync is never retried: the error stops
the operation, for after it nobody knows what is on the disk.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from s3t.errors import StorageError


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    """Turn an `OSError` within into a `StorageError` that says what was being done, and to which path."""
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)
        path = f" ({error.filename})" if error.filename else ""
        raise StorageError(
            f"{doing} failed: {what}{path}; free space or mend the disk, then run the same command again"
        ) from error


def write_durably(path: Path, write: Callable[[Path], None], *, tmp: Path, mode: int | None = 0o600) -> None:
    """Replace `path` by what `write` puts into a temporary file in `tmp` (same file system), atomically.

    Its mode is `mode`; with None, what the user's mask gives.

    Raises:
        OSError: the disk refused; `path` is as it was and the temporary file is gone.
    """
    make_folder(tmp)
    make_folder(path.parent)
    part = tmp / f"{os.getpid()}-{secrets.token_hex(8)}"
    try:
        write(part)
        if mode is not None:
            part.chmod(mode)
        _sync(part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, each name durable; one that is there is left alone."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_bytes_durably(path: Path, content: bytes, *, tmp: Path, mode: int = 0o600) -> None:
    """`write_durably` for bytes in memory."""
    write_durably(path, lambda part: _write_all(part, content), tmp=tmp, mode=mode)


def remove_durably(paths: list[Path]) -> None:
    """Remove files that may be gone already, then synchronise each folder once."""
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in sorted({path.parent for path in paths}):
        if folder.is_dir():
            sync_folder(folder)


def sweep_tmp(tmp: Path) -> None:
    """Remove temporary files whose process is gone. Those of running processes are theirs."""
    for part in tmp.iterdir() if tmp.is_dir() else ():
        if not is_running(part.name.partition("-")[0]):
            part.unlink(missing_ok=True)


def is_running(process: str) -> bool:
    """Whether a process of this number runs on this host."""
    try:
        os.kill(int(process), 0)
    except (ValueError, ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    _sync(folder)


def _write_all(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def writing_problems(path: Path, suffixes: Sequence[str]) -> list[str]:
    """What is wrong with a file that a user wants a result in, before any work is done for it."""
    problems = []
    if path.suffix.lower() not in suffixes:
        problems.append(f"has the suffix {path.suffix!r}; use {', '.join(suffixes)}")
    if path.is_dir():
        problems.append("is a folder; name a file")
    if not path.parent.is_dir():
        problems.append(f"its folder {path.parent} does not exist; make it first")
    return problems
