"""What a process writes: a log of every file that it opens for writing, makes or renames, wherever that is.

The log is that of an audit hook in the process (`watch_this_process`). Libraries that open files past Python (Arrow,
SQLite, safetensors) are not in it: for those, `Folders` compares what lies in folders before and after.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

LOG = "S3T_CHANGE_LOG"
"""The variable of the environment that names the log: lines of `what`, a tabulator, and an absolute path."""

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
NEW_NAME = {"os.rename": 1, "os.link": 1, "os.symlink": 1}
"""Events with an old name and a new one: the argument that is the new."""
MADE = ("os.truncate", "sqlite3.connect")


def watch_this_process() -> None:
    """From here on, note in the log what Python opens, makes or renames. Cannot be undone."""
    log = os.open(os.environ[LOG], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    sys.addaudithook(_hook(log))


def logged(log: Path) -> set[Path]:
    """The paths in a log."""
    lines = log.read_bytes().split(b"\n") if log.exists() else []
    return {Path(os.fsdecode(line.partition(b"\t")[2])) for line in lines if line}


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


def _hook(log: int) -> Callable[[str, tuple[Any, ...]], None]:
    def hook(event: str, details: tuple[Any, ...]) -> None:
        path = _written(event, details)
        if isinstance(path, str | bytes | os.PathLike):
            os.write(log, event.encode() + b"\t" + os.path.abspath(os.fsencode(path)) + b"\n")  # noqa: PTH100

    return hook


def _written(event: str, details: tuple[Any, ...]) -> Any:
    """The path that an event makes or writes, or None."""
    if event == "open":
        path, _mode, flags = details
        return path if isinstance(flags, int) and flags & WRITING else None
    if event in NEW_NAME:
        return details[NEW_NAME[event]]
    return details[0] if event in MADE else None
