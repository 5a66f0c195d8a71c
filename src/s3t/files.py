"""Files and folders that the user names: what is wrong with one is told before any work is done."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

MOST_NAME_BYTES = 255
"""Longest file name on Linux file systems, in bytes."""


def open_regular(path: Path) -> BinaryIO:
    """Open a user's file for reading; nothing but a regular one, for a pipe or a device may never come to an end.

    The check is of the open file, so no other process can swap the file in between.
    """
    # Without O_NONBLOCK, opening a named pipe waits for a writer.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have that name") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def is_folder(path: Path) -> bool:
    """True if the folder exists; False if its name is too long or its parent may not be read."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def reading_problem(path: Path) -> str | None:
    """Problem of an input file, found without opening it (opening a pipe would block); None if there is none."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "is not a file; check the path"
    except (OSError, ValueError) as error:
        return f"cannot be read: {reason_of(error)}; check the path"
    if stat.S_ISDIR(mode):
        return "is a folder; name a file"
    return None if stat.S_ISREG(mode) else "is no regular file but a pipe, a device or a socket; save it as a file"


def reason_of(error: OSError | ValueError) -> str:
    """Reason why the system refused a path. A ValueError means a null byte or undecodable text."""
    return (getattr(error, "strerror", None) or str(error)) if isinstance(error, OSError) else "no file has such a name"


def writing_problems(path: Path, suffixes: Sequence[str]) -> list[str]:
    """Problems of an output file, checked before any work is done."""
    problems = []
    if path.suffix.lower() not in suffixes:
        problems.append(f"has the suffix {path.suffix!r}; use {', '.join(suffixes)}")
    if not is_folder(path.parent):
        return [*problems, f"its folder {path.parent} does not exist; make it first"]
    try:
        if not path.exists() or path.is_file():
            return problems
    except (OSError, ValueError) as error:
        return [*problems, f"cannot be written: {reason_of(error)}; choose another name"]
    return [*problems, "is a folder; name a file" if is_folder(path) else "is no regular file; name another"]


def too_long(path: Path) -> str | None:
    """Problem of a path to be created: a name that is too long; None if there is none."""
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    over = longest - MOST_NAME_BYTES
    return None if over <= 0 else f"has a name that is {over} bytes too long; choose a shorter one"
