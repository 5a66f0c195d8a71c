"""What a process writes: a log of every file that it opens for writing, makes or renames, wherever that is.

The log is the shim's (`tests/faults/shim.c`), which sees what Python and what libraries do through libc. Beside it,
`Folders` compares what lies in folders before and after.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from tests.faults.shim import Shim


def watch_this_process(log: Path) -> None:
    """From here on, note in the log what is opened for writing, made or renamed."""
    Shim().log_changes(log)


def logged(log: Path) -> set[Path]:
    """The paths in a log, without folders that were made."""
    lines = log.read_bytes().split(b"\n") if log.exists() else []
    changes = (line.partition(b"\t") for line in lines if line)
    return {Path(os.fsdecode(path)) for what, _, path in changes if what != b"mkdir"}


class Folders:
    """Regular files below folders, as they were at first."""

    def __init__(self, folders: Collection[Path]) -> None:
        self._folders = folders
        self._before = dict(self._files())

    def changed(self) -> set[Path]:
        """Files that are new since, or other ones, or written to."""
        return {path for path, state in self._files() if self._before.get(path) != state}

    def _files(self) -> Iterator[tuple[Path, Any]]:
        for folder in self._folders:
            for path in folder.rglob("*"):
                found = path.lstat()
                if stat.S_ISREG(found.st_mode):
                    yield path, (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
