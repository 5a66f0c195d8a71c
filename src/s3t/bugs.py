"""Reports of unexpected failures, for the maintainers.

An exception's text, and the values in its frames, may hold a record. Its type and the places in the code cannot: they
alone are printed.
"""

from __future__ import annotations

import logging
import os
import platform
import re
import traceback
from collections.abc import Iterator
from typing import Any

from s3t.errors import S3TError
from s3t.version import __version__

VARIABLE = "S3T_DEBUG"
_MOST_FRAMES = 30
_OUR_PART = re.compile(r"(?:.*/(?:site-packages|python\d[\d.]*)/|.*/(?=s3t/)|.*/)(.+)")
"""Path of a module within its package, without the place of installation."""


def failure_lines(error: BaseException, *, command: str) -> list[str]:
    """An error's own sentence if s3t raised it on purpose, else the lines of a bug report: for logs."""
    return [str(error)] if isinstance(error, S3TError) else Bug(error, command=command).lines()


def log_failure(error: BaseException, *, command: str, level: int = logging.ERROR) -> None:
    """Log an error that ends a piece of work, without text of records: never with `exc_info`, which has it."""
    for line in failure_lines(error, command=command):
        logging.getLogger("s3t").log(level, "%s: %s", command, line)


class Bug:
    """A report for the maintainers of s3t. With `S3T_DEBUG` its lines have Python's traceback, with text of records."""

    def __init__(self, error: BaseException, *, command: str) -> None:
        self.kind = type(error).__name__
        self.document: dict[str, Any] = {
            "version": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "command": command,  # its name, without arguments
            "trace": list(_trace(error)),
        }
        """The report, JSON-compatible, without Python's traceback."""
        self._whole = "".join(traceback.format_exception(error))

    @property
    def sentence(self) -> str:
        if self.kind == "MemoryError":
            return "no memory was left; give the process more, or less to do, then run the same command again"
        last = self.document["trace"][-1]
        where = f" at {last.strip()}" if last.startswith(" ") else ""
        return (
            f"this is a bug of s3t ({self.kind}{where}); what is stored is as after a crash, and the next command goes "
            f"on from there. Report it with the lines of `bug`, which hold no text of a record; {VARIABLE}=1 shows "
            "Python's traceback, which may hold some"
        )

    def lines(self) -> list[str]:
        bug_lines = [f"bug: {name} {value}" for name, value in self.document.items() if name != "trace"]
        bug_lines += [f"bug: {line}" for line in self.document["trace"]]
        return [*bug_lines, *(self._whole.splitlines() if os.environ.get(VARIABLE) else ())]


def _trace(error: BaseException) -> Iterator[str]:
    """Types and frames, the first cause first."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    for link in reversed(chain):
        yield f"{type(link).__module__}.{type(link).__qualname__}".removeprefix("builtins.")
        frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(link.__traceback__)]
        if len(frames) > _MOST_FRAMES:
            yield f"  {len(frames) - _MOST_FRAMES} more"
        for code, line in frames[-_MOST_FRAMES:]:
            path = _OUR_PART.fullmatch(code.co_filename)
            yield f"  {path[1] if path else code.co_filename}:{line} {code.co_name}"
